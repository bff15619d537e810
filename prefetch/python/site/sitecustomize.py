# The library and `cubeshim run` put this directory in front of PYTHONPATH for every Python, so that
# the job announces what its data loaders will read. If there is another sitecustomize that would
# have run instead of this file, it runs too.
import os
import sys

HERE = os.path.realpath(os.path.dirname(__file__))


def announce():
    if sys.version_info < (3, 7):
        return
    above = os.path.dirname(HERE)
    # In a wheel this directory is part of the package. The package is found by its location,
    # because PYTHONPATH does not contain its parent.
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
    """Returns True if the package can only come from a user who could also have put this file
    there."""
    try:
        found = os.stat(package)
        return not found.st_mode & 0o002 and found.st_uid in (0, os.geteuid(), os.stat(HERE).st_uid)
    except OSError:
        return False


def real(place):
    try:
        return os.path.realpath(place or ".")
    except (OSError, ValueError):
        return None  # not a path, or a relative path in a removed working directory


def running():
    """Returns the directories of the sitecustomize modules that are being imported. The
    sitecustomize of a monitoring agent searches for the next sitecustomize in all of sys.path
    except its own directory, and so finds this file a second time."""
    found, frame = set(), sys._getframe()
    while frame is not None:
        names = frame.f_globals
        if frame.f_code.co_name == "<module>" and names.get(
                "__name__") == "sitecustomize" and names.get("__file__"):
            found.add(real(os.path.dirname(names["__file__"])))
        frame = frame.f_back
    return found


def run_shadowed():
    # Earlier entries belong to another copy of this sitecustomize, which has run already.
    reals = [real(place) for place in sys.path]
    first = reals.index(HERE) + 1 if HERE in reals else 0
    begun = running() | {HERE}
    places = [place for place, found in list(zip(sys.path, reals))[first:] if found not in begun]
    if sys.version_info < (3, 5):
        run_by_old_python(places)
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    # `import` has already asked the finders before Python's own PathFinder, and would have asked
    # PathFinder and the finders after it next.
    finders = sys.meta_path[sys.meta_path.index(PathFinder):] if PathFinder in sys.meta_path else [
        PathFinder
    ]
    spec = None
    for finder in finders:
        if spec is None and hasattr(finder, "find_spec"):
            spec = finder.find_spec("sitecustomize", places if finder is PathFinder else None)
    if spec is None or spec.loader is None:
        return
    # The result of `import sitecustomize` is the entry that sys.modules has when this module ends.
    if not hasattr(spec.loader, "exec_module"):  # in a zip file, up to Python 3.9
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
            importer, "load_module") else None  # in a zip file
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
