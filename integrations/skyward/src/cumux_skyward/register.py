"""Makes the plugin known to Skyward 0.11 and later.

There a plugin travels by its name, and each process (client, daemon, worker) looks the name up in a dictionary of the module `skyward.worker.plugins`.
There is no entry point to add a name. So `cumux_skyward.pth` has this module imported at the start of every process of the environment, and it waits
until that module is imported, without importing anything itself.
"""

import sys
from importlib.abc import Loader, MetaPathFinder

_MODULE = "skyward.worker.plugins"


def _register(module):
    from cumux_skyward.plugin import Cumux

    module.PLUGINS.setdefault(Cumux.kind, Cumux)


class _Registering(Loader):
    """Runs the module as its own loader does, and registers the plugin afterwards."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        _register(module)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Registering(spec.loader)
                return spec
        return None


if _MODULE in sys.modules:
    _register(sys.modules[_MODULE])
elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())
