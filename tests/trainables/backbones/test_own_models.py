"""BN-Inception, GoogLeNet and PyramidNet-200: sizes, layers by hand, weights of a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from trainables.backbones.backbone import build_backbone, build_frozen_backbone
from trainables.backbones.own_models import BACKBONES, IMAGENET, OwnModel
from trainables.config.network import BackboneConfig
from trainables.streams import seed_global_generator

IMAGES = torch.linspace(-1, 1, 2 * 3 * 64 * 64, dtype=torch.float64).view(2, 3, 64, 64).sin()


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def made(name: str) -> nn.Module:
    """With statistics and weights that no layer leaves as they are."""
    with seed_global_generator(0, "model"):
        model = BACKBONES[name]().double().eval()
        for norm in model.modules():
            if isinstance(norm, nn.BatchNorm2d):
                nn.init.normal_(norm.running_mean, 0, 0.1)
                nn.init.uniform_(norm.running_var, 0.5, 2)
                nn.init.uniform_(norm.weight, 0.5, 2)
                nn.init.normal_(norm.bias, 0, 0.1)
    return model


@pytest.mark.parametrize(
    ("name", "million", "tolerance", "side", "last"),
    [
        # Published: 10.3 M and 5.6 M without the classifier; 26.8 M with it for 100 classes.
        ("bn_inception", 10.3, 0.01, 224, 7),
        ("googlenet", 5.6, 0.01, 224, 7),
        ("pyramidnet200", 26.8, 0.01, 32, 8),
    ],
)
def test_sizes(name: str, million: float, tolerance: float, side: int, last: int) -> None:
    model = BACKBONES[name]().eval()
    with torch.no_grad():
        maps = model.forward_features(torch.zeros(1, 3, side, side))
    assert maps.shape == (1, 1024, last, last)
    total = parameters(model) + (1024 * 100 + 100 if name == "pyramidnet200" else 0)
    assert total / 1e6 == pytest.approx(million, rel=tolerance)


# What BN-Inception's layers are, told a second time: layers by name with their inputs. Each block
# lists its branches; a branch is a chain of (layer, stride) or a pooling.
def test_bn_inception_layer_by_layer() -> None:
    model = made("bn_inception")
    state = model.state_dict()

    def layer(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        pad = (weight.shape[2] - 1) // 2
        x = F.conv2d(x, weight, state[f"{name}.bias"], stride, pad)
        mean, var, scale, shift = (
            state[f"{name}_bn.{of}"][:, None, None]
            for of in ("running_mean", "running_var", "weight", "bias")
        )
        return ((x - mean) / (var + 1e-5).sqrt() * scale + shift).clamp_min(0)

    def pool(kind: str, x: Tensor, stride: int, pad: int) -> Tensor:
        """Caffe's pooling, window by window: a last window begins where the map still is."""
        padded = F.pad(x, (pad,) * 4, value=float("-inf") if kind == "max" else 0.0)
        side = padded.shape[2]
        starts = range(0, max(side - 3, 0) + stride, stride)
        starts = [
            at for at in starts if at < x.shape[2] + pad and (at == 0 or at - stride + 3 < side)
        ]
        rows = []
        for i in starts:
            row = []
            for j in starts:
                window = padded[:, :, i : i + 3, j : j + 3].flatten(2)
                row.append(window.amax(2) if kind == "max" else window.mean(2))
            rows.append(torch.stack(row, -1))
        return torch.stack(rows, -2)

    def block(name: str, x: Tensor, *, halves: bool = False, kind: str = "avg") -> Tensor:
        name, stride = f"inception_{name}", 2 if halves else 1
        out = [] if halves else [layer(f"{name}_1x1", x)]
        out.append(layer(f"{name}_3x3", layer(f"{name}_3x3_reduce", x), stride))
        double = layer(f"{name}_double_3x3_1", layer(f"{name}_double_3x3_reduce", x))
        out.append(layer(f"{name}_double_3x3_2", double, stride))
        if halves:
            out.append(pool("max", x, 2, 0))
        else:
            out.append(layer(f"{name}_pool_proj", pool(kind, x, 1, 1)))
        return torch.cat(out, 1)

    seen: dict[str, Tensor] = {}
    through = model._run_branches
    model._run_branches = lambda name, widths, maps: seen.setdefault(
        name, through(name, widths, maps)
    )
    with torch.no_grad():
        final = model.forward_features(IMAGES)
        x = pool("max", layer("conv1_7x7_s2", IMAGES, 2), 2, 0)
        x = pool("max", layer("conv2_3x3", layer("conv2_3x3_reduce", x)), 2, 0)
        widths = {}
        for name in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
            x = block(name, x, halves=name in ("3c", "4e"), kind="max" if name == "5b" else "avg")
            torch.testing.assert_close(seen[f"inception_{name}"], x, rtol=1e-9, atol=1e-9)
            widths[name] = x.shape[1]
    torch.testing.assert_close(final, x)
    # Ioffe & Szegedy's Fig. 5: output sizes of the blocks.
    assert list(widths.values()) == [256, 320, 576, 576, 576, 608, 608, 1056, 1024, 1024]


def test_googlenet_is_torchvisions() -> None:
    with seed_global_generator(0, "whole"):
        whole = torchvision.models.googlenet(aux_logits=False, init_weights=False).double().eval()
    ours = BACKBONES["googlenet"]().double().eval()
    ours.load_state_dict(whole.state_dict(), strict=False)
    whole.fc = nn.Identity()
    with torch.no_grad():
        torch.testing.assert_close(ours(IMAGES), whole(IMAGES))


def test_pyramidnet_layer_by_layer() -> None:
    model = made("pyramidnet200")
    state = model.state_dict()
    images = IMAGES[:1, :, ::2, ::2]

    def norm(name: str, x: Tensor) -> Tensor:
        mean, var, scale, shift = (
            state[f"{name}.{of}"][:, None, None]
            for of in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * scale + shift

    widths = [int(np.floor(16 + 240 / 66 * k + 0.5)) for k in range(1, 67)]
    x = norm("bn1", F.conv2d(images, state["conv1.weight"], padding=1))
    for k, width in enumerate(widths):
        at, stride = f"layer{k // 22 + 1}.{k % 22}", 2 if k in (22, 44) else 1
        out = F.conv2d(norm(f"{at}.bn1", x), state[f"{at}.conv1.weight"])
        assert out.shape[1] == width
        out = F.conv2d(
            norm(f"{at}.bn2", out).clamp_min(0), state[f"{at}.conv2.weight"], None, stride, 1
        )
        out = norm(
            f"{at}.bn4", F.conv2d(norm(f"{at}.bn3", out).clamp_min(0), state[f"{at}.conv3.weight"])
        )
        if stride == 2:
            x = (x[..., ::2, ::2] + x[..., 1::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, 1::2]) / 4
        zeros = torch.zeros(1, out.shape[1] - x.shape[1], *x.shape[2:], dtype=x.dtype)
        x = out + torch.cat([x, zeros], 1)
    with torch.no_grad():
        found = model.forward_features(images)
    wanted = norm("bn_final", x).clamp_min(0)
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8 * float(wanted.abs().max()))


def test_blue_comes_first_where_the_weights_want_it() -> None:
    def at(**fields: Any) -> Any:
        config = BackboneConfig.model_validate({"name": "test_resnet", "weights": "none", **fields})
        return build_frozen_backbone(config, 64)

    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    rgb = at(mean=mean, std=std)
    bgr = at(mean=mean, std=std, channels="bgr")
    assert (bgr.mean, bgr.std) == (mean[::-1], std[::-1])
    images = IMAGES.float()
    with torch.no_grad():
        torch.testing.assert_close(bgr(images), rgb(images.flip(1)))
    whole = at(mean=[255 * each for each in mean], std=[255 * each for each in std], pixel_max=255)
    assert whole.mean == pytest.approx(mean) and whole.std == pytest.approx(std)
    plain, wide = at(), at(pixel_max=255)
    assert wide.mean == pytest.approx(plain.mean) and wide.std == pytest.approx(plain.std)


def test_torchvisions_weights_come_by_its_own_route(monkeypatch: pytest.MonkeyPatch) -> None:
    with seed_global_generator(0, "weights"):
        whole = torchvision.models.googlenet(aux_logits=True, init_weights=False).state_dict()
    asked = []

    def fetched(url: str, **options: Any) -> dict[str, Tensor]:
        asked.append((url, options))
        return whole

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fetched)
    config = BackboneConfig.model_validate({"name": "googlenet", "weights": "torchvision"})
    backbone = build_frozen_backbone(config, 64)
    assert backbone.mean == backbone.std == (0.5, 0.5, 0.5)
    name = "inception5b.branch1.conv.weight"
    assert torch.equal(backbone.model.state_dict()[name], whole[name])
    ((url, options),) = asked
    assert url.endswith("googlenet-1378be20.pth")
    assert options["weights_only"] and options["check_hash"]


def test_a_model_of_another_package_is_built_as_ours_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(OwnModel):
        PIXELS, CLASSIFIER = IMAGENET, ()

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 5, 3, stride=2)

        def forward_features(self, images: Tensor) -> Tensor:
            return self._run_block(self.layer, images)

    BACKBONES.load()
    monkeypatch.setitem(BACKBONES._components, "mine", Mine)
    config = BackboneConfig.model_validate({"name": "mine", "weights": "none", "pool": "avg"})
    backbone = build_backbone(config, 32)
    assert backbone.features == 5 and backbone.mean == IMAGENET.mean
    assert backbone(IMAGES[:, :, ::2, ::2].float()).shape == (2, 5)
