"""Structure of an embedding space: π_density, ρ, G_2, σ²_κ (NIR, Table 3; Roth et al., "Revisiting
training strategies and generalization performance in deep metric learning", ICML 2020).

All are of rows brought to unit length, the hypersphere the papers speak of, whatever the score.
Distances are Euclidean, but in `density_code`.

Of DVML's Table 4 (Lin et al., ECCV 2018), is the spread of a class an isotropic Gaussian, and how
large is it? The paper prints p-values of a Kolmogorov–Smirnov test and an "average relative
deviation" and defines neither; what is computed here is a definition of ours, over classes with two
images or more, and its numbers need not match the paper's.

Shape legend: N items, n of a class · E embedding · C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.errors import ConfigError
from trainables.evaluation.metric import metric

BLOCK = 1024
BLOCK_NUMBERS = 2**24
LEAST_INTER = 1e-8  # of the public code


@metric("density")
def density(rows: Tensor, labels: Tensor) -> float:
    """Return π_density = π_intra/π_inter, ≥ 0, by the words of NIR's Section 4.4, "mean intraclass
    and interclass distance". Here all is Euclidean and every pair weighs the same; their code has
    neither: `density_code`.

    π_intra: mean distance over all pairs of different items of one class, whichever class that is;
    a class of one image has none. π_inter: mean distance over all pairs of different class centres,
    means of unit rows that are not brought to unit length themselves.
    """
    return mean_intra_distance(rows, labels) / mean_inter_distance(
        compute_class_means(rows, labels)
    )


@metric("density_code")
def density_code(rows: Tensor, labels: Tensor) -> float:
    """Return π_density = π_intra/π_inter, ≥ 0, as the public code of Roth et al. has it, on which
    NIR's is built ("dists@intra_over_inter"):

        π_intra = 1/C Σ_c 1/(n_c(n_c − 1)) Σ_{i≠j in c} (1 − ⟨x_i, x_j⟩)
        π_inter = 1/(C(C − 1)) Σ_{a≠b} (1 − ⟨m_a, m_b⟩),   m_c = Σ_{i in c} x_i / ‖Σ_{i in c} x_i‖

    Against `density`: cosine distances, half the squares of Euclidean ones; each class weighs the
    same; centres are of unit length. In float64, by ‖Σ x‖² = Σ_ij ⟨x_i, x_j⟩ and without any pair.

    Deviations: a class of one image, which has no pair, takes the largest value of the others, as
    the code's words say; by a slip of indexing it takes the largest of the first two classes. And a
    π_inter below 1e-8 is an error, where the code divides by 1e-8.
    """
    sizes, sums = _count_pair_sizes(labels), sum_classes(rows, labels)
    several = sizes > 1
    n = sizes[several].double()
    intra = 1 - (sums[several].square().sum(1) - n) / (n * (n - 1))
    singles = len(sizes) - len(n)
    within = float(intra.sum() + singles * intra.max()) / len(sizes)
    middle, count = F.normalize(sums, dim=1), len(sizes)
    alike = float(middle.sum(0).square().sum() - middle.square().sum())
    between = 1 - alike / (count * (count - 1)) if count > 1 else 0.0
    if between < LEAST_INTER:
        raise build_equal_centers_error(count)
    return max(within, 0.0) / between


@metric("concentration")
def concentration(rows: Tensor, labels: Tensor) -> float:
    """Return σ²_κ = variance over classes of κ_c/π_inter, κ_c the mean distance of a class's items
    to its centre, π_inter as in `density`, over all classes. The paper gives these words and no
    equation. Classes with one image have κ = 0 by definition and are left out of the variance,
    which is the population's (divided by the number of classes)."""
    several, of_class, kappa = _compute_spreads(rows, labels)
    return float((kappa[several] / mean_inter_distance(of_class)).var(correction=0))


@metric("spectrum", direction="minimize")
def spectrum(rows: Tensor, _: Tensor | None = None) -> float:
    """Return ρ = KL(U ‖ S) = Σ 1/m · log(1/(m s_i)), in nats: U uniform, S the m = min(N, E)
    singular values of the embedding matrix (not centred) divided by their sum. 0: all directions
    alike.

    A singular value below what float64 can tell from zero, s_max·max(N, E)·2⁻⁵², counts as that,
    so that rank-deficient embeddings give a large number and not infinity. All singular values
    take part, as in "rho_spectrum@1" of the public code of Roth et al., which also has forms
    without the largest value (@2) and without the nine largest (@10); NIR does not say which.
    """
    share = compute_singular_shares(rows)
    return float(-(share * len(share)).log().mean())


def compute_singular_shares(rows: Tensor) -> Tensor:
    """Return S of `spectrum`, [m] float64, descending."""
    triangle = rows.new_empty((0, rows.shape[1]), dtype=torch.float64)
    # R of the QR of all rows, block by block: the singular values of R are those of the matrix.
    for block in torch.split(rows, 4 * BLOCK):
        triangle = torch.linalg.qr(torch.cat([triangle, block.double()]), mode="r").R
    values = torch.linalg.svdvals(triangle)
    least = float(values.max()) * max(rows.shape) * torch.finfo(torch.float64).eps
    values = values.clamp(min=max(least, torch.finfo(torch.float64).tiny))
    share: Tensor = values / values.sum()
    return share


@metric("uniformity", direction="minimize")
def uniformity(rows: Tensor, _: Tensor | None = None) -> float:
    """Return G_2 = mean over pairs of different items of exp(−2‖u − v‖²), in (0, 1]. Shown as NIR
    does; its logarithm is Wang & Isola's uniformity. 1 if there is one item only: no pair is apart.
    """
    count = len(rows)
    if count == 1:
        return 1.0
    sums = []
    for first in range(0, count, BLOCK):
        a = rows[first : first + BLOCK]
        for left in range(first, count, 4 * BLOCK):
            b = rows[left : left + 4 * BLOCK]
            near = squared_distances(a, b).mul_(-2).exp_()
            # Pairs above the diagonal: column − row > 0 by index among all items.
            if left < first + len(a):
                near = near.triu(first - left + 1)
            sums.append(near.sum(dtype=torch.float64))
    return float(torch.stack(sums).sum()) / (count * (count - 1) / 2)


@metric("gaussian_p", unit="%")
def gaussian_p(rows: Tensor, labels: Tensor) -> float:
    """Mean over classes of the mean over dimensions of a p-value, in [0, 1].

    Of a class, x − μ_c is divided by one σ_c for all dimensions (isotropic), σ_c² the mean of all
    its squares; each dimension's n numbers are tested against N(0, 1), D the largest distance of
    the two distribution functions, p = Q((√n + 0.12 + 0.11/√n)·D), Q Kolmogorov's survival
    function with Stephens' correction. As μ_c and σ_c come from the data, p is not uniform under
    the hypothesis but larger: drawn Gaussians give 0.71 to 0.77 (4 to 400 items of a class, 16 to
    512 dimensions), the paper prints 0.75 to 0.84. A class of equal items has σ = 0 and p 0.
    """
    return float(_compute_class_p_values(rows, labels).mean())


@metric("gaussian_p_deviation", unit="%")
def gaussian_p_deviation(rows: Tensor, labels: Tensor) -> float:
    """Return the "±" beside `gaussian_p`: standard deviation over classes (population) of a class's
    p."""
    return float(_compute_class_p_values(rows, labels).std(correction=0))


@metric("relative_deviation", unit="%", direction="minimize")
def relative_deviation(rows: Tensor, labels: Tensor) -> float:
    """Mean over classes of (mean distance of its items to its centre μ_c)/‖μ_c‖, ≥ 0 (the paper
    prints per cent). A class whose centre is 0 makes it infinite, which is an error."""
    several, of_class, spread = _compute_spreads(rows, labels)
    length = torch.linalg.vector_norm(of_class.double(), dim=1)
    if (length[several] == 0).any():
        raise ConfigError("metrics.relative_deviation", "a class centre has length 0")
    return float((spread / length)[several].mean())


def _compute_spreads(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return which classes have two images or more [C], centres [C, E], and the mean distance of a
    class's items to its centre [C] float64."""
    sizes, of_class = _count_pair_sizes(labels), compute_class_means(rows, labels)
    away = torch.linalg.vector_norm(rows - of_class[labels], dim=1).double()
    order = labels.argsort(stable=True)
    return sizes > 1, of_class, torch.segment_reduce(away[order], "mean", lengths=sizes)


def _compute_class_p_values(rows: Tensor, labels: Tensor) -> Tensor:
    """Of every class with two images or more, float64."""
    own = _group_classes_by_size(rows, labels, lambda size: BLOCK_NUMBERS // (size * rows.shape[1]))
    return torch.cat([_compute_class_p(each) for each in own])


def _count_pair_sizes(labels: Tensor) -> Tensor:
    """Return sizes of the classes [C], some of which must have a pair."""
    sizes = torch.bincount(labels)
    if not (sizes > 1).any():
        raise ConfigError("metrics", "classes have one image each: one class needs two images")
    return sizes


def _group_classes_by_size(
    rows: Tensor, labels: Tensor, most: Callable[[int], int]
) -> Iterator[Tensor]:
    """Yield classes of one size n > 1 together [c, n, E], at most `most(n)` of them: few batched
    calls instead of one a class."""
    sizes, order = _count_pair_sizes(labels), labels.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    for size in torch.unique(sizes[sizes > 1]).tolist():
        for part in torch.split(starts[sizes == size], max(1, most(size))):
            yield rows[order[part[:, None] + torch.arange(size, device=rows.device)]]


def _compute_class_p(own: Tensor) -> Tensor:
    """Map [c, n, E] → [c]."""
    size = own.shape[1]
    away = own - own.mean(1, keepdim=True)
    sigma = away.square().mean((1, 2), keepdim=True).sqrt()
    # Equal items differ from their mean by rounding only.
    flat = sigma <= 1e-6 * torch.linalg.vector_norm(own, dim=2).mean(1)[:, None, None]
    below = torch.special.ndtr((away / torch.where(flat, 1.0, sigma)).sort(1).values)
    step = torch.arange(size, device=own.device, dtype=own.dtype)[None, :, None] / size
    distance = torch.maximum(below - step, step + 1 / size - below).amax(1).double()
    root = size**0.5
    p = kolmogorov_survival((root + 0.12 + 0.11 / root) * distance)
    return torch.where(flat[:, :, 0], 0.0, p).mean(1)


def kolmogorov_survival(x: Tensor) -> Tensor:
    """Return Q(x) = 2 Σ_{j ≥ 1} (−1)^{j−1} exp(−2j²x²), in [0, 1]; 1 below 0.2, where 1 − Q <
    1e-12."""
    terms = ((-1) ** (j - 1) * torch.exp(-2 * (j * x) ** 2) for j in range(1, 31))
    total: Tensor = sum(terms, torch.zeros_like(x))
    return torch.where(x < 0.2, 1.0, (2 * total).clamp(0, 1))


def compute_class_means(rows: Tensor, labels: Tensor) -> Tensor:
    """Return means of the classes [C, E]; labels are 0 … C − 1, all present. Deterministic on GPUs
    too."""
    order = labels.argsort(stable=True)
    return torch.segment_reduce(rows[order], "mean", lengths=torch.bincount(labels), axis=0)


def sum_classes(rows: Tensor, labels: Tensor) -> Tensor:
    """Return sums of the classes [C, E], float64, of rows brought to unit length in float64 again:
    float32 keeps lengths to some 1e-7, as large as small cosine distances. Deterministic on GPUs
    too."""
    order = labels.argsort(stable=True)
    sums = rows.new_zeros((int(labels.max()) + 1, rows.shape[1]), dtype=torch.float64)
    for at in torch.split(order, 4 * BLOCK):
        classes, sizes = torch.unique_consecutive(labels[at], return_counts=True)
        unit = F.normalize(rows[at].double(), dim=1)
        sums[classes] += torch.segment_reduce(unit, "sum", lengths=sizes, axis=0)
    return sums


def mean_intra_distance(rows: Tensor, labels: Tensor) -> float:
    """Mean distance over all pairs of different items of one class."""
    sizes, total = _count_pair_sizes(labels), []
    count = int((sizes * (sizes - 1) // 2).sum())
    width = rows.shape[1]
    for own in _group_classes_by_size(
        rows, labels, lambda size: 4 * BLOCK * BLOCK // (size * max(size, width))
    ):
        for at in range(0, own.shape[1], BLOCK):
            far = squared_distances(own[:, at : at + BLOCK], own).clamp_(min=0).sqrt_()
            total.append(far.triu(at + 1).sum(dtype=torch.float64))
    return float(torch.stack(total).sum()) / count


def mean_inter_distance(of_class: Tensor) -> float:
    """Mean distance over all pairs of different centres [C, E], of which two must be apart."""
    count, total = len(of_class), 0.0
    for first in range(0, count, BLOCK):
        far = torch.cdist(of_class[first : first + BLOCK].double(), of_class[first:].double())
        total += float(far.triu(1).sum())
    if total == 0:
        raise build_equal_centers_error(count)
    return total / (count * (count - 1) / 2)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return ‖a − b‖² [..., A, B] of unit rows as ‖a‖² + ‖b‖² − 2⟨a, b⟩: rounding of some 1e-7."""
    norms = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
    return norms.sub_((a @ b.mT).mul_(2))


def build_equal_centers_error(classes: int) -> ConfigError:
    what = f"{classes} class" + ("es of one centre" if classes > 1 else "")
    return ConfigError("metrics", f"{what}: distances between classes need two that are apart")
