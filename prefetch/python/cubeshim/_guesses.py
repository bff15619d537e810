"""Guesses which files a data set reads if its attributes have unusual names. An attribute counts if
it is a list of absolute paths. A list or a pandas table of names counts if the names are relative
to a directory that is also an attribute, and the first of these files exists.

As in _dataset_lists.py, this runs no code of the program. It can run code of pandas.
"""
import os
import sys

from cubeshim._dataset_lists import (is_absolute, is_path, is_sequence, own, paths_of,
                                     resolve_below, under)

MOST_DIRECTORIES = 8  # each directory costs one lookup of a file


class Column:
    """Makes a column of a table usable as a list."""
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


def columns(value):
    """Returns the columns of a pandas table, or the single column of a Series."""
    pandas = sys.modules.get("pandas")
    if type(value) is getattr(pandas, "Series", None):
        return [Column(value.array)]
    if type(value) is getattr(pandas, "DataFrame", None):
        return [Column(value.iloc[:, number].array) for number in range(value.shape[1])]
    return []


def lists_of(owner, length):
    found = [
        part for value in own(owner).values()
        for part in ([value] if is_sequence(value) else columns(value))
    ]
    return [entries for entries in found if len(entries) == length > 0]


def firsts(entries):
    """Returns the first path of three entries: the first, the middle and the last entry. Empty if
    one of them has no path."""
    found = [paths_of(entries[index])[:1] for index in (0, len(entries) // 2, len(entries) - 1)]
    return [os.fsdecode(path) for paths in found for path in paths] if all(found) else []


def is_of_names(entries):
    """Returns True if the entries look like file names. A label is also text, but has no suffix."""
    return bool(firsts(entries)) and all(
        os.path.splitext(name)[1] and not os.path.isabs(name) for name in firsts(entries))


def of_guesses(owner, length):
    """Returns a function from an index to paths, or None."""
    lists = lists_of(owner, length)
    absolute = [
        entries for entries in lists if firsts(entries) and all(map(is_absolute, firsts(entries)))
    ]
    if absolute:
        return resolve_below(absolute, "")
    directories = [
        os.fsdecode(value) for value in own(owner).values() if is_path(value) and is_absolute(value)
    ]
    for entries in filter(is_of_names, lists):
        for directory in directories[:MOST_DIRECTORIES]:
            if os.path.exists(under(directory, firsts(entries)[0])):
                return resolve_below([entries], directory)
    return None
