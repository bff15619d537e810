"""Data sets whose files cubeshim knows: data sets of torchvision, timm and Hugging Face, and data
sets with common attributes."""
import contextlib
import os
import pathlib
import pickle
import sys
import types
import unittest

from support import *  # noqa: F403
from cubeshim._datasets import resolver
from torch.utils.data import ConcatDataset, Subset

PICTURE = bytes.fromhex(
    "ffd8ffdb004300" + "01" * 64 +
    "ffc0000b080001000101011100ffc40014000100000000000000000000000000000003ffc4001410010000000000"
    "0000000000000000000000ffda0008010100003f0037ffd9")


class Plain(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        assert 0 <= int(index) < self.count
        return index


class Trap:
    """Stands for an object of the program. It records each attribute that is looked up."""
    calls = []

    def __getattr__(self, name):
        Trap.calls.append(name)
        raise AttributeError(name)

    def __getitem__(self, index):
        Trap.calls.append("[]")
        return "/data/trap"

    def __len__(self):
        Trap.calls.append("len")
        return 4


class Heard(Case):
    def heard(self, dataset, **more):
        """Returns the announced paths of the whole data set, in order."""
        server = self.serve()
        iterator, _ = begun(DataLoader(dataset, collate_fn=as_is, **more))
        heard = server.wait_for_order()[0].paths()
        server.stop()
        return heard

    def of(self, count=4, **attributes):
        """Returns a data set with these attributes, whose items are its indices."""
        dataset = Plain(count)
        vars(dataset).update(attributes)
        return dataset


class DataSets(Heard):
    def make(self, names):
        names = list(names)
        for name in names:
            path = self.dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(PICTURE)
        return [str(self.dir / name) for name in names]

    def test_folders_of_torchvision(self):
        from torchvision.datasets import DatasetFolder, ImageFolder
        names = self.make(f"{kind}/{i}.jpg" for kind in ("a", "b") for i in range(5))
        self.assertEqual(
            self.heard(ImageFolder(str(self.dir), is_valid_file=lambda p: p.endswith(".jpg"))),
            names)
        self.assertEqual(self.heard(DatasetFolder(str(self.dir), lambda path: path, (".jpg",))),
                         names)

    def test_voc(self):
        from torchvision.datasets import VOCDetection
        base = self.dir / "VOCdevkit" / "VOC2007"
        names = [f"{i:06}" for i in range(4)]
        (base / "ImageSets" / "Main").mkdir(parents=True)
        (base / "ImageSets" / "Main" / "train.txt").write_text("\n".join(names) + "\n")
        (base / "JPEGImages").mkdir()
        (base / "Annotations").mkdir()
        for name in names:
            (base / "JPEGImages" / f"{name}.jpg").write_bytes(PICTURE)
            (base / "Annotations" / f"{name}.xml").write_text("<annotation><object/></annotation>")
        heard = self.heard(VOCDetection(str(self.dir), "2007", "train"))
        self.assertEqual(
            heard,
            [str(base / f) for n in names for f in (f"JPEGImages/{n}.jpg", f"Annotations/{n}.xml")])

    def test_coco(self):
        from torchvision.datasets import CocoDetection
        names = self.make(f"{i}.jpg" for i in range(4))
        dataset = CocoDetection.__new__(
            CocoDetection)  # its constructor would need pycocotools
        dataset.root, dataset.ids = str(self.dir), [30, 10, 20, 0]
        dataset.transforms = None
        dataset.coco = types.SimpleNamespace(loadImgs=lambda i: [{"file_name": f"{i // 10}.jpg"}],
                                             getAnnIds=lambda i: [], loadAnns=lambda ids: [])
        self.assertEqual(self.heard(dataset), [names[i] for i in (3, 1, 2, 0)])

    def test_lists_side_by_side(self):
        class Lists(torch.utils.data.Dataset):
            def train_data_list(self):
                random.random()  # moves a generator, which the loop must not notice
                return [[f"/data/x{i}" for i in range(6)], [f"/data/y{i}" for i in range(6)]]

            def __len__(self):
                return 6

            def __getitem__(self, index):
                return index

        before = random.getstate()
        self.assertEqual(self.heard(Lists(), sampler=[4, 0]),
                         ["/data/x4", "/data/y4", "/data/x0", "/data/y0"])
        self.assertEqual(random.getstate(), before)

    def test_imgs_and_parts(self):
        class Imgs(torch.utils.data.Dataset):
            def __init__(self, name):
                self.imgs = [f"/data/{name}{i}" for i in range(4)]

            def __len__(self):
                return 4

            def __getitem__(self, index):
                return index

        class Nothing(Imgs):
            def __init__(self):
                pass

        a, b = Imgs("a"), Imgs("b")
        self.assertEqual(self.heard(a), a.imgs)
        self.assertEqual(self.heard(Subset(a, [3, 1])), ["/data/a3", "/data/a1"])
        both = ConcatDataset([a, Nothing(), Subset(b, torch.tensor([2, 0]))])
        self.assertEqual(self.heard(both, sampler=[8, 0, 5, -1, 3]),
                         ["/data/b2", "/data/a0", "/data/b0", "/data/a3"])

    def test_entries_other_than_files_are_skipped(self):
        class Odd(Files):
            def __init__(self):
                self.draws = False
                self.samples = [
                    "rel/a", "/data/b", "s3://bucket/c", "", "/x\0y", b"/data/d",
                    "/data/" + "x" * 5000
                ]

        heard = self.heard(Odd())
        self.assertEqual(heard, [os.path.join(os.getcwd(), "rel/a"), "/data/b", "/data/d"])


class Attributes(Heard):
    NAMES = [f"/data/{i}.jpg" for i in range(4)]

    def test_lists_by_their_names(self):
        for name in ("files", "paths", "image_paths", "img_files", "filenames", "_image_files",
                     "images", "samples", "imgs", "data"):
            for kind in (list, tuple, numpy.array,
                         lambda names: [pathlib.Path(path) for path in names],
                         lambda names: [(path, 1) for path in names],
                         lambda names: [[path, "cat"] for path in names]):
                with self.subTest(name, kind=kind):
                    resolve = resolver(self.of(**{name: kind(self.NAMES)}))
                    self.assertEqual([resolve(i) for i in range(4)],
                                     [[path] for path in self.NAMES])
        self.assertEqual(self.heard(self.of(files=self.NAMES), sampler=[2, 0]),
                         ["/data/2.jpg", "/data/0.jpg"])

    def test_several_files_of_an_index(self):
        masks = [f"/mask/{i}.png" for i in range(4)]
        both = [[image, mask] for image, mask in zip(self.NAMES, masks)]
        for dataset in (self.of(samples=list(zip(self.NAMES, masks))),
                        self.of(images=self.NAMES, masks=masks, label_names=["cat"] * 4),
                        self.of(data=[{"image": a, "label": b, "text": "a cat"}
                                      for a, b in zip(self.NAMES, masks)])):
            resolve = resolver(dataset)
            self.assertEqual([resolve(i) for i in range(4)], both)

    def test_relative_names_are_joined_to_the_root_directory(self):
        for more, expected in (({"root": "/d"}, "/d/0.jpg"), ({"root": "/d",
                                                               "img_dir": "x"}, "/d/x/0.jpg"),
                               ({"root": "/d", "img_dir": "/e"},
                                "/e/0.jpg"), ({"image_dir": pathlib.Path("/e")}, "/e/0.jpg"),
                               ({"_root_dir": "/d/"}, "/d/0.jpg"), ({}, "0.jpg")):
            self.assertEqual(
                resolver(self.of(files=[f"{i}.jpg" for i in range(4)], **more))(0), [expected])
        # Paths that already have the directory, absolute paths, and words.
        self.assertEqual(
            resolver(self.of(files=["rel/d/0.jpg"] * 4, root="rel"))(0), ["rel/d/0.jpg"])
        self.assertEqual(resolver(self.of(files=["/a/0.jpg"] * 4, root="/d"))(0), ["/a/0.jpg"])
        self.assertEqual(resolver(self.of(data=["a word"] * 4, root="/d"))(0), ["a word"])

    def test_a_list_is_a_data_set(self):
        self.assertEqual(self.heard(self.NAMES, batch_size=None, shuffle=False), self.NAMES)

    def test_attributes_other_than_lists_of_paths_are_ignored(self):
        for value in (list(range(4)), [None] * 4, ["/data/a"] * 3, "/abc", {0: "/data/a"},
                      numpy.zeros((4, 2)), numpy.array("x"), [], [()] * 4, torch.zeros(4), None, 4):
            self.assertIsNone(resolver(self.of(files=value)), value)

    def test_lists_are_recognized_by_their_content(self):
        masks = [f"/mask/{i}.png" for i in range(4)]
        resolve = resolver(
            self.of(x=self.NAMES, cats=["a cat"] * 4, y=numpy.array(masks), z=["/data/z"] * 3))
        self.assertEqual([resolve(i) for i in range(4)],
                         [[image, mask] for image, mask in zip(self.NAMES, masks)])
        entries = [
            types.SimpleNamespace(image=path, text="a cat", box=[1, 2]) for path in self.NAMES
        ]
        for name in ("records", "x"):
            self.assertEqual(resolver(self.of(**{name: entries}))(2), ["/data/2.jpg"])
        # Each probe must be a path; a known name takes precedence.
        self.assertIsNone(
            resolver(self.of(x=["/data/0.jpg", "/data/1.jpg", "a dog", "/data/3.jpg"])))
        self.assertIsNone(resolver(self.of(x=["/data/0.jpg", None, "/data/2.jpg", None])))
        self.assertEqual(resolver(self.of(x=masks, files=self.NAMES))(0), self.NAMES[:1])

    def test_names_below_a_directory_that_is_there(self):
        for i in range(4):
            (self.dir / f"{i}.jpg").write_bytes(PICTURE)
        names = [f"{i}.jpg" for i in range(4)]
        here = [[str(self.dir / name)] for name in names]
        for directory in (str(self.dir), self.dir):
            resolve = resolver(
                self.of(main_dir=directory, nowhere="/nowhere", cats=["a cat"] * 4,
                        total_imgs=names))
            self.assertEqual([resolve(i) for i in range(4)], here)
        self.assertIsNone(resolver(self.of(main_dir="/nowhere", total_imgs=names)))
        self.assertIsNone(
            resolver(self.of(main_dir=str(self.dir), total_imgs=["4.jpg"] + names[1:])),
            "the first is not there")
        # A table, as in torch's tutorial on data sets.
        with self.tables() as (frame, series):
            labels = frame({"file": names, "label": [0, 1, 2, 3], "cat": ["a", "b", "c", "d"]})
            resolve = resolver(self.of(img_labels=labels, img_dir=str(self.dir)))
            self.assertEqual([resolve(i) for i in range(4)], here)
            self.assertEqual(
                resolver(self.of(x=frame({"a": self.NAMES, "b": self.NAMES[::-1]})))(0),
                ["/data/0.jpg", "/data/3.jpg"])
            self.assertEqual(resolver(self.of(x=series(self.NAMES)))(3), ["/data/3.jpg"])
            self.assertIsNone(resolver(self.of(3, img_labels=labels, img_dir=str(self.dir))),
                              "one of another length")

    @contextlib.contextmanager
    def tables(self):
        """Provides the used parts of pandas' tables."""
        class Series:
            def __init__(self, values):
                self.array = values

        class DataFrame:
            def __init__(self, columns):
                self.columns = list(columns.values())
                self.shape = len(self.columns[0]), len(self.columns)

                self.iloc = self

            def __getitem__(self, rows_and_column):
                return Series(self.columns[rows_and_column[1]])

        made = types.ModuleType("pandas")
        made.Series, made.DataFrame = Series, DataFrame
        before = sys.modules.get("pandas")
        sys.modules["pandas"] = made
        try:
            yield DataFrame, Series
        finally:
            sys.modules.pop("pandas")
            if before is not None:
                sys.modules["pandas"] = before

    def test_code_of_the_program_does_not_run(self):
        class Odd(Plain):
            def __getattribute__(self, name):
                if name in ("files", "samples", "reader", "coco"):
                    Trap.calls.append(name)
                return super().__getattribute__(name)

            @property
            def files(self):
                Trap.calls.append("property")

        class List(list):
            __getitem__ = Trap.__getitem__

        odd = Odd(4)
        vars(odd).update(images=Trap(), data=List(self.NAMES), samples=Trap(), reader=Trap(),
                         base=Trap(), dataset=Trap())
        self.assertIsNone(resolver(odd))
        self.assertEqual(Trap.calls, [])

    def test_timm(self):
        """timm's ImageDataset has a reader with `root` and `samples`; AugMixDataset wraps the data
        set."""
        reader = types.SimpleNamespace(root="rel",
                                       samples=[(f"rel/a/{i}.jpg", i) for i in range(4)],
                                       class_to_idx={"a": 0})
        dataset = self.of(reader=reader, load_bytes=False)
        self.assertEqual([resolver(dataset)(i) for i in (3, 0)], [["rel/a/3.jpg"], ["rel/a/0.jpg"]])
        self.assertEqual(resolver(self.of(dataset=dataset, num_splits=2))(1), ["rel/a/1.jpg"])
        # If the length differs, the wrapping data set uses its indices in another way.
        self.assertIsNone(resolver(self.of(5, dataset=dataset)))

    def test_mmengine(self):
        """The BaseDataset of mmengine has an array of pickled entries, and the end of each
        entry."""
        module = types.ModuleType("mmengine.dataset")
        module.BaseDataset = type("BaseDataset", (Plain,), {})
        sys.modules["mmengine.dataset"] = module
        self.addCleanup(sys.modules.pop, "mmengine.dataset")
        entries = [
            pickle.dumps(
                {"img_path": path, "seg_map_path": f"/seg{path}", "text": "a/b", "label": 1},
                protocol=4) for path in self.NAMES
        ]
        dataset = module.BaseDataset(4)
        vars(dataset).update(
            data_bytes=numpy.concatenate(
                [numpy.frombuffer(entry, dtype=numpy.uint8) for entry in entries]),
            data_address=numpy.cumsum([len(entry) for entry in entries]), data_list=[])
        resolve = resolver(dataset)
        self.assertEqual([resolve(i) for i in (0, 3, -1)],
                         [[self.NAMES[i], f"/seg{self.NAMES[i]}"] for i in (0, 3, 3)])
        # A data set that is not loaded yet, and the same attributes in a class of the program.
        self.assertIsNone(resolver(module.BaseDataset(4)))
        self.assertIsNone(resolver(self.of(**vars(dataset))))

    def test_data_set_that_contains_itself_is_not_followed_forever(self):
        dataset = self.of()
        dataset.dataset = dataset
        self.assertIsNone(resolver(dataset))

    def test_parts_of_parts(self):
        inner = self.of(files=self.NAMES)
        nest = Subset(ConcatDataset([self.of(2),
                                     Subset(inner, [3, 2, 1]),
                                     ConcatDataset([inner])]), [8, 0, 2])
        self.assertEqual([resolver(nest)(i) for i in range(3)],
                         [["/data/3.jpg"], [], ["/data/3.jpg"]])


class HuggingFace(Heard):
    """A data set like those of the library `datasets`: a table of Arrow and, if it is shuffled, a
    table of rows."""
    class Column:
        def __init__(self, values):
            self.values = values
            self.null_count = sum(value is None for value in values)

        def __len__(self):
            return len(self.values)

        def __getitem__(self, row):
            return types.SimpleNamespace(as_py=lambda: self.values[row])

    def dataset(self, rows, indices=None, wanted=None, fields=("bytes", "path")):
        parts = [types.SimpleNamespace(name=name) for name in fields]
        struct = types.SimpleNamespace(num_fields=len(parts), field=lambda i: parts[i])
        schema = [
            types.SimpleNamespace(name="image", type=struct),
            types.SimpleNamespace(name="label", type=types.SimpleNamespace(num_fields=0))
        ]
        table = types.SimpleNamespace(schema=schema, column=lambda name: {"image": rows}[name])
        module = types.ModuleType("datasets")

        class Dataset(Plain):
            pass

        module.Dataset = Dataset
        arrow = types.ModuleType("pyarrow.compute")
        arrow.struct_field = lambda column, name: self.Column([row[name] for row in column])
        for name, made in (("datasets", module), ("pyarrow.compute", arrow)):
            before = sys.modules.get(name)
            sys.modules[name] = made
            self.addCleanup(lambda name=name, before=before: sys.modules.update({name: before})
                            if before else sys.modules.pop(name))
        made = Dataset(len(indices or rows))
        rows_of = None if indices is None else types.SimpleNamespace(table=types.SimpleNamespace(
            column=lambda i: self.Column(indices)))
        vars(made).update(_data=types.SimpleNamespace(table=table), _indices=rows_of,
                          _format_columns=wanted)
        return made

    def test_pictures_that_are_files(self):
        rows = [{"bytes": None, "path": f"/data/{i}.jpg"} for i in range(4)]
        self.assertEqual(self.heard(self.dataset(rows)), [row["path"] for row in rows])
        self.assertEqual([resolver(self.dataset(rows, indices=[3, 1]))(i) for i in range(2)],
                         [["/data/3.jpg"], ["/data/1.jpg"]])

    def test_other_columns_are_ignored(self):
        rows = [{"bytes": None, "path": f"/data/{i}.jpg"} for i in range(3)]
        self.assertIsNone(resolver(self.dataset(rows, wanted=["label"])))
        self.assertIsNone(resolver(self.dataset(rows, fields=("bytes", "name"))))
        self.assertIsNone(resolver(self.dataset(rows + [{"bytes": b"x", "path": "3.jpg"}])))
        self.assertEqual(resolver(self.dataset([{"bytes": None, "path": None}]))(0), [])


if __name__ == "__main__":
    unittest.main()
