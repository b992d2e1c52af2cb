"""`docs` over a real ledger, and the pages in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakehouse.errors.errors import FilesExist
from lakehouse.ledger.ledger import Ledger
from pipelines.cli import main
from tests.lake import Lake

selenium = pytest.importorskip("selenium")

from selenium.webdriver import Chrome, ChromeOptions  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
NAMED = "SELECT x.k, x.v, x.w, n.name FROM result x LEFT JOIN names n ON x.v = n.v -- <script>alert(1)</script>"
SOURCES = {"left": "k", "right": "k", "names": "v"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    if not CHROMIUM.exists() or not DRIVER.exists():
        pytest.skip("needs Debian's chromium and chromium-driver in /usr/bin")
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def run_twice(standard: Lake) -> Lake:
    lake = standard
    lake.create("names", "v STRING, name STRING", "('a', 'Ann'), ('b', 'Bob')")
    pipeline = lake.pipeline(sources=SOURCES, further={"named": NAMED})
    pipeline.run(lake.spark)
    lake.sql("UPDATE {left} SET v = 'b' WHERE k = 1")
    lake.sql("DELETE FROM {left} WHERE k = 3")
    pipeline.run(lake.spark)
    return lake


@pytest.mark.deep
def test_the_pages_are_written_and_clicked_through(run_twice, browser, capsys, monkeypatch):
    """From the overview to a join and back, by its row, by the graph and by keys; nothing is fetched from elsewhere."""
    lake, reads = run_twice, []
    monkeypatch.setattr(Ledger, "of", lambda *_: pytest.fail("joins are not looked up one by one"))
    rows_of = Ledger._rows
    monkeypatch.setattr(Ledger, "_rows", lambda *given, **newest: reads.append(1) or rows_of(*given, **newest))
    assert main(["docs", "-f", str(lake.file)]) == 0
    index = Path(capsys.readouterr().out.strip())
    assert index == lake.folder / "docs" / "index.html"
    assert len(reads) == 2, "the ledger is read for the epochs, and for the verifications"

    _clear(browser)
    browser.get(index.as_uri())
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert rows[0].startswith("result committed table-table strict left, right 2 ")
    assert "1 updated, 1 deleted" in rows[0]
    assert rows[1].startswith("named committed foreign-key strict result, names 2 ")

    browser.find_element(By.LINK_TEXT, "named").click()
    assert browser.current_url == (lake.folder / "docs" / "joins" / "named.html").as_uri()
    assert browser.find_element(By.TAG_NAME, "pre").text == NAMED
    assert len(browser.find_elements(By.CSS_SELECTOR, "#ledger tbody")) == 2
    assert len(browser.find_elements(By.CSS_SELECTOR, "figure svg[role=img]")) == 3
    browser.find_element(By.ID, "filter").send_keys("load")
    assert [row.is_displayed() for row in browser.find_elements(By.CSS_SELECTOR, "#ledger tbody")] == [False, True]
    assert browser.find_element(By.ID, "shown").text == "1 of 2"
    browser.find_element(By.LINK_TEXT, "result").click()
    assert browser.find_element(By.TAG_NAME, "h1").text.startswith("result")
    browser.find_element(By.LINK_TEXT, "test").click()
    assert browser.current_url == index.as_uri()

    browser.find_element(By.CSS_SELECTOR, "svg a[href='joins/named.html']").click()
    assert browser.current_url.endswith("/joins/named.html")
    browser.back()
    node = browser.find_element(By.CSS_SELECTOR, "svg a[href='joins/result.html']")
    browser.execute_script("arguments[0].focus()", node)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.current_url.endswith("/joins/result.html")

    for width in (400, 1400):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        for page in index.parent.rglob("*.html"):
            browser.get(page.as_uri())
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (page, width)
    assert browser.get_log("browser") == []
    asked = _requested(browser)
    assert asked
    assert [url for url in asked if not url.startswith("file://")] == []


@pytest.mark.slow
def test_data_docs_are_reached_from_the_overview(run_twice, browser, capsys):
    """By a click each, there and back; nothing is fetched from elsewhere."""
    site = run_twice.folder / "site"
    assert main(["validate", "-f", str(run_twice.file), "--docs", str(site)]) == 0
    assert f"page: {site}/data_docs/named.html" in capsys.readouterr().out
    _clear(browser)
    browser.get((site / "index.html").as_uri())
    browser.find_element(By.LINK_TEXT, "Data quality").click()
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert [row.split()[:3] for row in rows] == [["result", "met", "result"], ["named", "met", "named"]]
    browser.find_element(By.LINK_TEXT, "named").click()
    assert browser.current_url == (site / "data_docs" / "named.html").as_uri()
    assert browser.find_element(By.CSS_SELECTOR, "tbody th").text.startswith("key k is present in every row")
    for width in (400, 1400):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.find_element(By.LINK_TEXT, "test").click()
    assert browser.current_url == (site / "index.html").as_uri()
    assert browser.get_log("browser") == []
    assert [url for url in _requested(browser) if not url.startswith("file://")] == []


@pytest.mark.deep
def test_the_policy_of_the_pages_stops_a_script_that_is_not_ours(standard: Lake, browser: Chrome) -> None:
    """Were a text ever let through unescaped it would still not run; so the log of the console is one that tells."""
    index = standard.pipeline().docs(standard.spark, standard.folder / "site")
    assert index == standard.folder / "site" / "index.html"
    assert "This pipeline has not run yet" in index.read_text()
    index.write_text(index.read_text().replace("<footer>", "<script>window.stranger = 1</script><footer>"))
    _clear(browser)
    browser.get(index.as_uri())
    assert browser.execute_script("return window.stranger") is None
    assert any("Content Security Policy" in line["message"] for line in browser.get_log("browser"))


@pytest.mark.slow
def test_data_docs_are_linked_where_they_are_and_other_files_stay(standard, capsys):
    folder = standard.folder / "elsewhere"
    (folder / "data_docs").mkdir(parents=True)
    (folder / "data_docs" / "index.html").write_text("<h1>theirs</h1>")
    index = standard.pipeline().docs(standard.spark, folder)
    assert 'href="data_docs/index.html"' in index.read_text()
    assert 'href="../data_docs/index.html"' in (folder / "joins" / "result.html").read_text()
    assert (folder / "data_docs" / "index.html").read_text() == "<h1>theirs</h1>"
    index.write_text("mine")
    with pytest.raises(FilesExist):
        standard.pipeline().docs(standard.spark, folder)
    assert main(["docs", "-f", str(standard.file), "--folder", str(folder)]) == 2
    told = capsys.readouterr().err
    assert "not written by lakejoin" in told
    assert "docs --folder" in told
    assert index.read_text() == "mine"


def _clear(browser: Chrome) -> None:
    browser.get_log("browser")
    browser.get_log("performance")


def _requested(browser: Chrome) -> list[str]:
    """List the addresses that the pages asked for since the log was cleared; reading the log empties it."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked: list[dict[str, Any]] = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [params["request"]["url"] for params in asked]
