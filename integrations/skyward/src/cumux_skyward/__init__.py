"""cumux on the nodes of a Skyward compute.

`cumux(...)` makes the plugin that the installed Skyward takes: a value of the class `Cumux` from 0.11 on, a plugin of the builder before that. Both do
the same on the node: they start a daemon if none serves the pipe directory, set the variables by which CUDA programs find it, and end the daemon that
they have started. Unlike Skyward's own plugin for MPS they refuse to go on without a daemon.
"""

from cumux_skyward.service import ServiceError, Settings

__all__ = ["ServiceError", "Settings", "cumux"]


def cumux(**settings):
    """The plugin for `plugins=[...]`; the settings are the fields of `Settings`."""
    Settings(**settings).check()
    try:
        import skyward.worker.plugins  # noqa: F401
    except ImportError:
        from cumux_skyward.builder import plugin

        return plugin(Settings(**settings))
    from cumux_skyward.plugin import Cumux

    return Cumux(**settings)
