"""ray.data: read_images by ray's own workers."""

import ray

TITLE = "ray.data read_images"
VENV = "ray"
PACKAGES = ("ray",)


def reader(data):
    # Ray's sockets need a short path.
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
             object_store_memory=200 << 20, _temp_dir=None)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def read(epoch):
        for batch in ray.data.read_images(str(data), size=(160, 160),
                                          mode="RGB").iter_batches(batch_size=32):
            for picture in batch["image"]:
                epoch.add(picture)

    return read
