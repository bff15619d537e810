"""Finds lists of paths among the attributes of an object.

This runs no code of the program. Attributes are read from the object's own dictionary, never
through a property. Only lists of Python and numpy count, because reading their entries runs no
code."""
import os
import pathlib
import sys

# In these lists, one entry contains all paths of an index.
WHOLE = ("samples", "imgs")
# The first of these attributes that is a list of paths is used, together with the lists in BESIDE.
FIRST = ("images", "image_files", "image_paths", "image_list", "img_files", "img_paths", "img_list",
         "im_files", "files", "file_paths", "filepaths", "file_list", "paths", "filenames",
         "file_names", "fnames", "audio_files", "audio_paths", "data", "items", "entries",
         "records")
BESIDE = ("targets", "masks", "mask_files", "mask_paths", "label_files", "label_paths", "segs",
          "annotations")
# Attributes with a directory to which names can be relative: ROOTS for all files, PARTS for the
# pictures below it.
ROOTS = ("root", "root_dir", "data_root", "data_dir", "base_dir", "directory", "folder")
PARTS = ("image_dir", "images_dir", "img_dir", "image_folder", "img_folder", "image_root",
         "img_root")


def own(owner):
    """Returns the attributes of the object itself."""
    try:
        found = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def is_path(value):
    return isinstance(value, (str, bytes, pathlib.PurePath))


def is_file_name(value):
    """Returns True if an arbitrary string looks like a path."""
    if not is_path(value):
        return False
    text = os.fsdecode(value)
    return os.sep in text and "\n" not in text and "\0" not in text


def is_absolute(value):
    return is_path(value) and os.path.isabs(os.fsdecode(value))


def is_sequence(value):
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(value) is getattr(numpy, "ndarray", None):
        return value.ndim == 1 and value.dtype.kind in "OSU"
    return isinstance(
        value, (list, tuple)) and type(value).__getitem__ in (list.__getitem__, tuple.__getitem__)


def paths_of(entry):
    """Returns the paths in an entry of a list. From a tuple, it takes the first element and all
    others that look like paths; from a dictionary or an object, the values that look like paths."""
    if is_path(entry):
        return [entry]
    if isinstance(entry, (list, tuple)) and is_sequence(entry) and entry:
        return ([entry[0]] if is_path(entry[0]) else
                []) + [value for value in entry[1:] if is_file_name(value)]
    values = entry if type(entry) is dict else own(entry)
    return [value for value in values.values() if is_file_name(value)]


def is_list(value, length):
    """Returns True if the first entry contains a path and there is an entry for each index."""
    return is_sequence(value) and len(value) == length > 0 and bool(paths_of(value[0]))


def base_of(owner):
    named = {name.strip("_"): value for name, value in own(owner).items() if is_path(value)}
    chosen = [
        next((os.fsdecode(named[name]) for name in names if name in named),
             "") for names in (ROOTS, PARTS)
    ]
    return under(*chosen) if chosen[0] else chosen[1]


def under(base, path):
    """Joins a relative name to the directory. The data set probably does the same. A name that
    already begins with the directory is not changed."""
    if not base or os.path.isabs(path) or path.startswith(base.rstrip("/") + "/") or not path:
        return path or base
    return os.path.join(base, path)


def resolve_below(lists, base):
    def resolve(index):
        paths = [os.fsdecode(path) for entries in lists for path in paths_of(entries[index])]
        # Joins the base only to names with an extension, so that other strings, such as a label, do
        # not become paths below the prefix.
        return [under(base, path) if os.path.splitext(path)[1] else path for path in paths]

    return resolve


def of_lists(owner, length):
    """Returns a function from an index to the paths in its entries, or None."""
    named = {}
    for name, value in own(owner).items():
        named.setdefault(name.strip("_"), value)
    base = base_of(owner)
    for name in WHOLE:
        if is_list(named.get(name), length):
            return resolve_below([named[name]], base)
    first = next((named[name] for name in FIRST if is_list(named.get(name), length)), None)
    if first is None:
        return None
    beside = [
        named[name]
        for name in BESIDE
        if is_list(named.get(name), length) and all(map(is_absolute, paths_of(named[name][0])))
    ]
    return resolve_below([first] + beside, base)
