"""Which files a data set reads for an index: a function, or None where that is not known."""
import bisect
import os
import sys


def is_path(value):
    return isinstance(value, (str, bytes, os.PathLike))


def path_of(entry):
    """A path, or the first of a tuple."""
    return entry[0] if isinstance(entry, (tuple, list)) and entry else entry


def is_list(value, length):
    """One that holds something that is, or begins with, a path for each index."""
    return (hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, (str, bytes, dict))
            and len(value) == length and length > 0 and is_path(path_of(value[0])))


def side_by_side(lists):
    return lambda index: [path_of(entries[index]) for entries in lists]


def plain(dataset, name):
    """An attribute that costs nothing and changes nothing to look at: a property may do anything."""
    value = getattr(dataset, "__dict__", {}).get(name)
    if value is None and not isinstance(getattr(type(dataset), name, None), property):
        value = getattr(type(dataset), name, None)
    return value


def of_named_lists(dataset, length):
    method = getattr(dataset, "train_data_list", None)
    if callable(method):
        lists = method()
        if is_list(lists, length):
            lists = [lists]
        if lists and all(is_list(entries, length) for entries in lists):
            return side_by_side(list(lists))
    for name in ("samples", "imgs"):
        entries = plain(dataset, name)
        if is_list(entries, length):
            return side_by_side([entries])
    lists = [plain(dataset, name) for name in ("images", "targets")]  # VOC: a picture and its annotation
    return side_by_side(lists) if all(is_list(entries, length) for entries in lists) else None


def of_coco(dataset):
    coco, root, ids = (plain(dataset, name) for name in ("coco", "root", "ids"))
    if not is_path(root) or not hasattr(coco, "loadImgs") or not hasattr(ids, "__getitem__"):
        return None
    return lambda index: [os.path.join(root, coco.loadImgs(ids[index])[0]["file_name"])]


def of_parts(dataset, kind):
    """Subset and ConcatDataset of torch or paddle."""
    if kind == "Subset":
        inner, indices = resolver(dataset.dataset), dataset.indices
        return inner and (lambda index: inner(indices[index]))
    parts = [resolver(part) for part in dataset.datasets]
    ends = list(dataset.cumulative_sizes)
    if not any(parts):
        return None

    def resolve(index):
        if index < 0:
            index += ends[-1]
        which = bisect.bisect_right(ends, index)
        return parts[which](index - (ends[which - 1] if which else 0)) if parts[which] else []
    return resolve


def kind_of(dataset):
    for module in ("torch.utils.data", "paddle.io"):
        for name in ("IterableDataset", "Subset", "ConcatDataset"):
            known = getattr(sys.modules.get(module), name, None)
            if isinstance(known, type) and isinstance(dataset, known):
                return name
    return None


def resolver(dataset):
    kind = kind_of(dataset)
    if kind == "IterableDataset" or not hasattr(dataset, "__getitem__") or not hasattr(type(dataset), "__len__"):
        return None
    if kind is not None:
        return of_parts(dataset, kind)
    return of_named_lists(dataset, len(dataset)) or of_coco(dataset)
