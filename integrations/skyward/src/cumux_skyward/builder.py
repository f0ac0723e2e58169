"""The plugin for Skyward up to 0.9: made of hooks, which travel with the compute."""

from contextlib import contextmanager
from dataclasses import replace

from skyward.api.plugin import Plugin

from cumux_skyward.service import serving

PACKAGES = ("cumux", "cumux-skyward")


def plugin(settings):
    """The plugin with these settings."""

    def transform(image, cluster):
        pip = tuple(image.pip or ())
        return replace(image, env={**image.env, **settings.environment()}, pip=(*pip, *(name for name in PACKAGES if name not in pip)))

    @contextmanager
    def around_app(info):
        with serving(settings):
            yield

    return Plugin.create("cumux").with_image_transform(transform).with_around_app(around_app)
