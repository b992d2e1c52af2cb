from pipelines.commands.demo.tour import run_demo

__all__ = ["run_demo"]
