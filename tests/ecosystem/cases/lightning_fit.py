"""lightning: Trainer.fit over a LightningDataModule; an epoch of the case is an epoch of the
trainer."""

import lightning as L
import torch
from imagefolder import pictures_of

TITLE = "lightning Trainer.fit, DataModule, 2 workers"
VENV = "torch2"
PACKAGES = ("lightning", "torch")


class Pictures(L.LightningDataModule):
    def __init__(self, data):
        super().__init__()
        self.pictures = pictures_of(data)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.pictures, batch_size=32, shuffle=True,
                                           num_workers=2)


class Adder(L.LightningModule):
    """A model with a single weight, so that reading is the main work."""
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.epoch = None

    def training_step(self, batch, _):
        pictures, _, digests = batch
        for value in digests.tolist():
            self.epoch.add_digest(value)
        return (self.weight * pictures[:, 0, 0, 0].float().mean())**2

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def reader(data):
    torch.set_num_threads(1)
    model, module = Adder(), Pictures(data)

    def read(epoch):
        model.epoch = epoch
        torch.manual_seed(epoch.number)
        L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False).fit(model, module)

    return read
