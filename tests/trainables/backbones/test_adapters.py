"""A part of the backbone trains: adapters, biases or the last blocks; the rest stays to the bit."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from tests.trainables.core import exported
from tests.trainables.core_trials import config, train
from trainables import streams
from trainables.backbones.adapters import merge_adapters, restrict_training
from trainables.backbones.backbone import Backbone, build_frozen_backbone
from trainables.config.network import BackboneConfig
from trainables.core.assembly import build_trial_backbone
from trainables.core.identity import compute_config_hash
from trainables.core.runtime import Runtime
from trainables.core.trained_model import load_model
from trainables.core.trainer import Trainer
from trainables.trial import TrialConfig, list_trained_roles
from trainables.words.errors import ConfigError

SIDE = 32
LAYERS = {  # a transformer, linear layers between convolutions, and 1 × 1 convolutions
    "test_vit": None,
    "test_convnext": ["mlp"],
    "test_efficientnet": ["conv_pw", "conv_pwl", "se"],
}


def build(name: str, seed: int = 0, **options: Any) -> Backbone:
    if options.setdefault("mode", "lora") == "lora":
        options.setdefault("targets", LAYERS[name])
    section = {"name": name, "weights": "none", **options}
    data = {"name": "typefaces", "image_size": SIDE}
    trial = TrialConfig.model_validate({"data": data, "backbone": section})
    return build_trial_backbone(trial, seed)


def build_frozen(name: str) -> Backbone:
    return build_frozen_backbone(BackboneConfig(name=name, weights="none", mode="frozen"), SIDE)


def list_trained(module: nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


def fill(backbone: Backbone) -> Backbone:
    """Give adapters values, as training does."""
    with streams.seed_global_generator(0, "fill"):
        for name, parameter in backbone.named_parameters():
            if name.endswith(("lora_a", "lora_b")):
                nn.init.normal_(parameter, std=0.2)
    return backbone


def images(count: int = 3) -> Tensor:
    return torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("name", list(LAYERS))
def test_fresh_adapters_are_the_frozen_backbone_and_filled_ones_are_not(
    name: str, bf16: bool
) -> None:
    """To the bit, with any seed, in training mode too."""
    frozen = build_frozen(name)
    adapted = build(name, seed=7)
    assert list_trained(adapted) and all("lora_" in part for part in list_trained(adapted))
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        expected = frozen(images())
        assert torch.equal(adapted(images()), expected)
    fill(adapted)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        assert not torch.allclose(adapted(images()), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", list(LAYERS))
def test_merged_weights_give_the_same_features_without_adapters(name: str) -> None:
    adapted = fill(build(name)).double().eval()
    merged = merge_adapters(copy.deepcopy(adapted))
    torch.testing.assert_close(merged(images().double()), adapted(images().double()))
    plain = build(name, mode="finetune").double().eval()
    plain.load_state_dict(merged.state_dict())
    if name != "test_efficientnet":  # its norms are folded
        assert torch.equal(plain(images().double()), merged(images().double()))


def test_a_model_that_reads_weights_itself_is_adapted_too() -> None:
    """BEiT and EVA pass `qkv.weight` to a function and never call the layer."""
    from timm.models.beit import Beit

    model = Beit(img_size=SIDE, embed_dim=24, depth=1, num_heads=2, num_classes=0).double()
    section = BackboneConfig(name="beit", mode="lora", targets=("qkv",), rank=2)
    restrict_training(model, section)
    before = model(images().double())
    nn.init.normal_(model.blocks[0].attn.qkv.lora_b)
    after = model(images().double())
    assert not torch.allclose(before, after)
    after.square().sum().backward()
    assert model.blocks[0].attn.qkv.lora_a.grad.abs().sum() > 0
    torch.testing.assert_close(merge_adapters(model)(images().double()), after)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LAYERS))
def test_features_and_gradients_are_those_of_peft(name: str) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    ours = fill(build(name, rank=3, alpha=5.0)).double().eval()
    theirs = build_frozen(name).double()
    trained = [name.removeprefix("model.") for name in list_trained(ours)]
    layers = [n.removesuffix(".lora_a") for n in trained if n.endswith(".lora_a")]
    options = LoraConfig(r=3, lora_alpha=5, target_modules=layers, init_lora_weights=False)
    theirs.model = inject_adapter_in_model(options, theirs.model)  # type: ignore[arg-type]
    theirs.double()
    for layer in layers:
        one, other = ours.model.get_submodule(layer), theirs.model.get_submodule(layer)
        for own, weights in (("lora_a", other.lora_A), ("lora_b", other.lora_B)):
            weight = weights["default"].weight  # type: ignore[index]
            weight.data = getattr(one, own).detach().clone().view_as(weight)
    for backbone in (ours, theirs):
        backbone(images().double()).square().sum().backward()
    torch.testing.assert_close(theirs(images().double()), ours(images().double()))
    for layer in layers:
        one, other = ours.model.get_submodule(layer), theirs.model.get_submodule(layer)
        for own, weights in (("lora_a", other.lora_A), ("lora_b", other.lora_B)):
            expected = weights["default"].weight.grad  # type: ignore[index]
            actual = getattr(one, own).grad
            torch.testing.assert_close(actual, expected.view_as(actual))


# --------------------------------------------------------------------------------- what trains


def test_what_each_option_leaves_to_train() -> None:
    def list_parts(**options: Any) -> set[str]:
        return {name.removeprefix("model.") for name in list_trained(build("test_vit", **options))}

    blocks = len(build("test_vit", mode="finetune").model.blocks)  # type: ignore[arg-type]
    last = f"blocks.{blocks - 1}."
    qkv = {f"{last}attn.qkv.lora_a", f"{last}attn.qkv.lora_b"}
    assert list_parts(targets=["attn.qkv"], blocks=1) == qkv
    held = [f"blocks.{number}" for number in range(blocks - 1)]
    assert list_parts(targets=["qkv"], hold=held) == qkv
    assert len(list_parts()) == blocks * 4 * 2
    tuned = list_parts(mode="last_blocks")
    assert tuned >= {f"{last}norm1.weight", f"{last}mlp.fc2.bias"}
    assert all(name.startswith((last, "norm.", "fc_norm.")) for name in tuned)
    assert {name for name in tuned if name.endswith("bias")} == list_parts(mode="bias", blocks=1)
    assert list_parts(mode="last_blocks", blocks=blocks).isdisjoint({"cls_token", "pos_embed"})


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"targets": ["attn", "qvk"]}, "targets: no linear layer of test_vit has the name part "
         "'qvk'. Linear layers are named attn.proj, attn.qkv, mlp.fc1, mlp.fc2"),
        ({"name": "test_resnet"}, "targets: test_resnet has no linear layers in parts named attn "
         "or mlp. Give some of its linear layers as targets: .*conv1"),
        ({"blocks": 99}, r"blocks: test_vit has \d+ blocks, not 99. Give at most"),
        ({"name": "bn_inception", "mode": "bias", "blocks": 2}, "bn_inception does not say what"),
        ({"hold": ["blocks"]}, "lora leaves nothing of test_vit to train"),
        ({"mode": "finetune", "rank": 4}, "rank has no effect with backbone.mode: finetune"),
        ({"mode": "bias", "targets": ["attn"]}, "targets has no effect with backbone.mode: bias"),
        ({"mode": "frozen", "blocks": 1}, "blocks has no effect with backbone.mode: frozen"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_the_plan(
    drawn: Path, options: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ValidationError, match=fault):
        config(drawn, backbone={"name": "test_vit", "mode": "lora", **options})


def test_a_model_without_linear_layers_is_refused_with_the_names_that_it_has() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU()))
    fault = r"bare has no linear layers to adapt; its layers are 0, 1\.0, 1\.1\."
    with pytest.raises(ConfigError, match=fault):
        restrict_training(model, BackboneConfig(name="bare", mode="lora"))


# ----------------------------------------------------------------------------------- in a trial


def test_adapters_have_a_role_of_their_own(drawn: Path, shared_cache: Path) -> None:
    options: dict[str, Any] = {
        "backbone": {"name": "test_vit", "mode": "lora"},
        "optimizer": {"multipliers": {"adapters": 5, "backbone": 0}},
        "schedule": {"warmup_epochs": 1},
        "training": {"epochs": 2},
    }
    trial = config(drawn, **options)
    assert list_trained_roles(trial) == ("adapters", "head", "proxies")
    trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache))
    rates = {group["role"]: group["base_lr"] for group in trainer.optimizer.param_groups}
    assert rates["adapters"] == 5 * rates["head"] and "backbone" not in rates
    start = {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}
    moved = []
    for _ in trainer.train_epochs():
        state = trainer.network.state_dict().items()
        moved.append({name for name, tensor in state if not torch.equal(start[name], tensor)})
    assert all(name.startswith("method.") for name in moved[0])  # the warm-up holds adapters
    trained = {name for name in moved[1] if name.startswith("backbone.")}
    assert trained == {f"backbone.{name}" for name in list_trained(build("test_vit"))}


def test_defaults_that_are_written_are_the_same_trial(drawn: Path) -> None:
    plain: dict[str, Any] = {"backbone": {"name": "test_vit", "mode": "lora"}}
    written = {"rank": 8, "alpha": 8, "targets": ["attn", "mlp"], "blocks": None}
    other = {"backbone": {**plain["backbone"], **written}}
    first, second = (compute_config_hash(config(drawn, **c), "data") for c in (plain, other))
    assert first == second
    plain["backbone"]["rank"] = 4
    assert compute_config_hash(config(drawn, **plain), "data") != first


@pytest.mark.parametrize("mode", ["lora", "last_blocks"])
def test_checkpointed_blocks_have_the_same_gradients(mode: str) -> None:
    """Though what goes into the first block has no gradient."""
    gradients = []
    for is_checkpointed in (False, True):
        backbone = fill(build("test_vit", mode=mode))
        backbone.model.set_grad_checkpointing(is_checkpointed)  # type: ignore[operator]
        backbone(images()).square().sum().backward()
        gradients.append({n: p.grad for n, p in backbone.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() == list_trained(backbone)
    assert all(torch.equal(gradients[1][name], g) for name, g in gradients[0].items())


def test_checkpoints_leave_the_base_out_and_refuse_another(
    drawn: Path, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = config(drawn, backbone={"name": "test_vit", "mode": "lora"}, training={"epochs": 1})
    runtime = Runtime("cpu", 1, shared_cache, tmp_path, checkpoint_seconds=0)
    train(trial, 0, runtime)
    newest = sorted((tmp_path / "checkpoints").glob("steps-*"))[-1]
    complete = sum(t.nbytes for t in Trainer(trial, 0, runtime).network.state_dict().values())
    assert newest.stat().st_size < complete
    monkeypatch.setattr("trainables.core.assembly.FROZEN_STREAM", (1, "other"))
    with pytest.raises(ConfigError, match=r"backbone\.weights: the weights here have the digest"):
        Trainer(trial, 0, runtime)


# ------------------------------------------------------------------------------------- exports


@pytest.mark.parametrize("mode", ["lora", "bias", "last_blocks"])
def test_an_export_has_what_trained_and_loads_on_the_same_base(
    mode: str, drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    trial = config(
        drawn,
        backbone={"name": "test_vit", "mode": mode},
        training={"epochs": 1},
        method={"name": "idml"},
    )
    trainer = Trainer(trial, 3, Runtime("cpu", 1, shared_cache, tmp_path))
    list(trainer.train_epochs())
    trainer.finish()
    path = tmp_path / "best.safetensors"
    about, tensors = exported.said(path)
    in_backbone = {name for name in tensors if name.startswith("backbone.")}
    assert in_backbone == {f"backbone.{name}" for name in list_trained(trainer.network.backbone)}
    assert any(name.startswith("method.loss.") for name in tensors)
    model = load_model(path, "cpu")
    pictures = torch.randint(0, 256, (3, 40, 40, 3), dtype=torch.uint8)
    trainer.network.eval()
    rows = model.embed(pictures)
    model.network = trainer.network
    assert torch.equal(model.embed(pictures), rows)
    other = exported.sealed(tmp_path / "b.safetensors", about | {"base_sha256": "0" * 64}, tensors)
    with pytest.raises(
        ConfigError, match=r"backbone\.weights: .*b\.safetensors was trained on 000"
    ):
        load_model(other, "cpu")


def test_adapters_of_vit_s_at_rank_8_take_less_than_5_mb(tmp_path: Path) -> None:
    section = {"name": "vit_small_patch16_224", "weights": "none", "mode": "lora", "rank": 8}
    path = exported.write(tmp_path / "a.safetensors", backbone=section, embedding={"dim": 512})
    assert path.stat().st_size < 5e6
    assert load_model(path, "cpu").embed(torch.zeros(1, 32, 32, 3, dtype=torch.uint8)).shape
