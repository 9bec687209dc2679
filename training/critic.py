"""A small classifier of the same images; evaluation asks it what it sees."""

from torch import nn
from torch.nn import functional as F

WIDTHS = [16, 32, 48, 64, 96]


class Critic(nn.Module):
    """3x3 convolutions of stride 2 with ReLU, mean over the image, one Linear."""

    def __init__(self, classes):
        super().__init__()
        pairs = zip([3] + WIDTHS[:-1], WIDTHS)
        self.convs = nn.ModuleList([nn.Conv2d(i, o, 3, stride=2, padding=1) for i, o in pairs])
        self.hidden = nn.Linear(WIDTHS[-1] * 16, 128)
        self.head = nn.Linear(128, classes)

    def see(self, images):
        """[n, 3, 128, 128] in [0, 1] -> features [n, 128], seven channels by place [n, 7 * 16]."""
        x = images * 2 - 1
        for conv in self.convs:
            x = F.relu(conv(x))
        return F.relu(self.hidden(x.flatten(1))), x[:, :7].flatten(1)

    def forward(self, images):
        return self.head(self.see(images)[0])


def config(classes):
    return {"model_type": "critic", "widths": WIDTHS, "hidden": 128, "classes": classes, "input": 128}
