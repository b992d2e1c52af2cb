"""The import of Great Expectations beside other work."""

import threading

from expectations import validation
from expectations.validation import import_in_background


def test_great_expectations_is_imported_by_a_thread_that_validation_waits_for() -> None:
    validation._context.cache_clear()
    with validation._one_at_a_time:
        import_in_background()
        (importing,) = (thread for thread in threading.enumerate() if thread.name == "great-expectations")
        assert not validation._context.cache_info().currsize
    importing.join()
    assert validation._context.cache_info().currsize == 1
    import_in_background()
    assert all(thread.name != "great-expectations" for thread in threading.enumerate())
