"""A lake whose tables lie in a bucket."""

from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse.session.engine import Engine
from lakehouse.session.files import Files
from tests.lake import JOIN, Lake

BUCKET = "lakes"


class S3Lake(Lake):
    def __init__(self, spark: SparkSession, folder: Path, name: str) -> None:
        super().__init__(spark, folder)
        self.root = f"s3a://{BUCKET}/{name}/lake house"
        self.storage = {"storage": {"path": self.root}}

    @property
    def files(self) -> Files:
        return Engine.of(self.spark).files

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def version(self, name: str = "result") -> int:
        return int(self.sql(f"DESCRIBE HISTORY {{{name}}} LIMIT 1", name)[0]["version"])

    def stages(self) -> list[str]:
        """Name the files below the folder of stages, without the empty objects that stand for folders."""
        found = self.files.listed(self.path("lakejoin_stage"), recursive=True)
        return [one.path for one in found if not one.is_folder]

    def is_right(self) -> bool:
        """Compare the result with what its statement says of the sources as they are."""
        statement = JOIN.replace(" left ", " {left} ").replace(" right ", " {right} ")
        return self.rows() == sorted((tuple(row) for row in self.sql(statement)), key=repr)
