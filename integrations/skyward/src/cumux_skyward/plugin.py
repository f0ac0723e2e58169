"""The plugin for Skyward 0.11 and later: a struct of parameters that travels by its name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from msgspec.structs import asdict, replace
from skyward.shared.schemas import Image
from skyward.worker.api import Info
from skyward.worker.plugins.plugin import Plugin

from cumux_skyward.service import LOG_DIRECTORY, PIPE_DIRECTORY, Settings, serving

# What a node needs: the program with its library, and this package, whose name the worker looks up.
PACKAGES = ("cumux", "cumux-skyward")


class Cumux(Plugin, frozen=True):
    """See `cumux_skyward.service.Settings` for the fields."""

    kind: ClassVar[str] = "cumux"
    collective: ClassVar[bool] = False

    memory: str | None = None
    percentage: float | None = None
    isolation: str | None = None
    device: str | None = None
    pipe: str = PIPE_DIRECTORY
    log: str = LOG_DIRECTORY

    def settings(self) -> Settings:
        return Settings(**asdict(self))

    def image(self, image: Image) -> Image:
        self.settings().check()
        return replace(image, pip=(*image.pip, *(name for name in PACKAGES if name not in image.pip)))

    @contextmanager
    def setup(self, info: Info) -> Iterator[None]:
        with serving(self.settings()):
            yield
