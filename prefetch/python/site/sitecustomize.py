# Put in front of PYTHONPATH by the library, in every Python, and by `cubeshim run`: the job
# announces what its data loaders will read. The sitecustomize that would have run instead, if there
# is one, runs too.
import os
import sys

HERE = os.path.realpath(os.path.dirname(__file__))


def announce():
    if sys.version_info < (3, 7):
        return
    above = os.path.dirname(HERE)
    # In a wheel this directory is a part of the package. The package comes by its place, for
    # PYTHONPATH does not name it.
    parent = above if os.path.isdir(os.path.join(above, "cubeshim")) else os.path.dirname(above)
    if not is_trusted(os.path.join(parent, "cubeshim")):
        return
    sys.path.insert(0, parent)
    try:
        import cubeshim
    except Exception:
        pass
    finally:
        sys.path.remove(parent)


def is_trusted(package):
    """Nobody may have put it there who could not have put this file there."""
    try:
        found = os.stat(package)
        return not found.st_mode & 0o002 and found.st_uid in (0, os.geteuid(), os.stat(HERE).st_uid)
    except OSError:
        return False


def real(place):
    try:
        return os.path.realpath(place or ".")
    except (OSError, ValueError):
        return None  # a relative one, and the working directory has been removed; or no path at all


def running():
    """Directories of the sitecustomize modules that have begun and not ended. The one of a
    monitoring agent looks for the next by itself, in all of sys.path but its own directory, and so
    finds this file once more."""
    found, frame = set(), sys._getframe()
    while frame is not None:
        names = frame.f_globals
        if frame.f_code.co_name == "<module>" and names.get(
                "__name__") == "sitecustomize" and names.get("__file__"):
            found.add(real(os.path.dirname(names["__file__"])))
        frame = frame.f_back
    return found


def run_shadowed():
    # Places before this one are another sitecustomize's of ours, which has been run.
    reals = [real(place) for place in sys.path]
    first = reals.index(HERE) + 1 if HERE in reals else 0
    begun = running() | {HERE}
    places = [place for place, found in list(zip(sys.path, reals))[first:] if found not in begun]
    if sys.version_info < (3, 5):
        run_by_old_python(places)
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    # Finders that stand before Python's own have been asked by `import`; those behind it would have
    # been asked then.
    finders = sys.meta_path[sys.meta_path.index(PathFinder):] if PathFinder in sys.meta_path else [
        PathFinder
    ]
    spec = None
    for finder in finders:
        if spec is None and hasattr(finder, "find_spec"):
            spec = finder.find_spec("sitecustomize", places if finder is PathFinder else None)
    if spec is None or spec.loader is None:
        return
    # The entry that stands here when this module ends is the result of `import sitecustomize`.
    if not hasattr(spec.loader, "exec_module"):  # of a zip file, up to Python 3.9
        del sys.modules["sitecustomize"]
        spec.loader.load_module("sitecustomize")
        return
    module = sys.modules["sitecustomize"] = module_from_spec(spec)
    spec.loader.exec_module(module)


def run_by_old_python(places):
    import imp
    for place in places:
        importer = sys.path_importer_cache.get(place)
        loader = importer.find_module("sitecustomize") if hasattr(
            importer, "load_module") else None  # of a zip file
        if loader is not None:
            loader.load_module("sitecustomize")
            return
        try:
            found = imp.find_module("sitecustomize", [place])
        except ImportError:
            continue
        imp.load_module("sitecustomize", *found)
        return


announce()
run_shadowed()
