"""Wraps modules with data loaders when the program imports them. Imports nothing itself."""
import sys

# Maps each module with loaders to our module that wraps it.
TARGETS = {
    "torch.utils.data.dataloader": "cubeshim._torch_samplers",
    "paddle.io.dataloader.dataloader_iter": "cubeshim._paddle",
    "paddle.fluid.dataloader.dataloader_iter": "cubeshim._paddle",  # up to 2.4
}


def wrap(module):
    """Never fails. A data loader with an unknown structure is left alone."""
    try:
        __import__(TARGETS[module.__name__])
        sys.modules[TARGETS[module.__name__]].wrap(module)
    except Exception as error:
        try:
            from cubeshim._log import trouble
            trouble("%s is left alone: %r" % (module.__name__, error))
        except Exception:
            pass


class Loader:
    """Runs the module's own loader, and then wrap()."""
    def __init__(self, real):
        self.real = real

    def __getattr__(self, name):
        return getattr(self.real, name)

    def create_module(self, spec):
        return self.real.create_module(spec)

    def exec_module(self, module):
        # The module must see its real loader while it runs.
        module.__spec__.loader = module.__loader__ = self.real
        self.real.exec_module(module)
        wrap(module)


class Finder:
    """Leaves the search for each module to the later finders, and wraps the loaders of the modules
    in TARGETS."""
    def find_spec(self, name, path=None, target=None):
        if name not in TARGETS:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader)
                return spec
        return None


def install():
    if any(
            type(finder).__name__ == "Finder" and type(finder).__module__ == __name__
            for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, Finder())
    for name in TARGETS:
        if name in sys.modules:
            wrap(sys.modules[name])
