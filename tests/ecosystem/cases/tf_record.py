"""TensorFlow: TFRecord shards, interleaved."""

import tensorflow as tf

TITLE = "tf.data TFRecordDataset, 12 shards of 3 MB"
VENV = "tf"
PACKAGES = ("tensorflow-cpu",)
SHARDS = 12
FEATURES = {
    "jpg": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)
}


def make(pictures, data):
    writers = [
        tf.io.TFRecordWriter(str(data / f"{number:03}.tfrecord")) for number in range(SHARDS)
    ]
    for number, path in enumerate(sorted(pictures.glob("*/*.jpg"))):
        features = {
            "jpg": tf.train.Feature(bytes_list=tf.train.BytesList(value=[path.read_bytes()])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 10]))
        }
        writers[number % SHARDS].write(
            tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    for writer in writers:
        writer.close()


def reader(data):
    def read(epoch):
        files = tf.data.Dataset.list_files(str(data / "*.tfrecord"), shuffle=True,
                                           seed=epoch.number)
        records = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=2)
        for batch in records.batch(32).map(
                lambda texts: tf.io.parse_example(texts, FEATURES)).prefetch(2):
            for picture, label in zip(batch["jpg"].numpy(), batch["label"].numpy()):
                epoch.add(picture, int(label))

    return read
