"""Metrics of the structure of an embedding space: density, spectrum, uniformity, concentration.

All of them take rows of unit length, whatever the loss's score. Distances are Euclidean, except in
`density_code`. `gaussian_p` and `relative_deviation` measure whether the spread of a class is an
isotropic Gaussian, and how large it is. DVML's Table 4 prints such numbers without a definition, so
ours, over classes with two images or more, need not match them.

Shape legend: N items, n of a class · E embedding · C classes.

References:
    Roth et al., "Non-isotropy regularization for proxy-based deep metric learning", CVPR 2022,
    Table 3 (π_density, ρ, G_2, σ²_κ). https://arxiv.org/abs/2203.08547
    Roth et al., "Revisiting training strategies and generalization performance in deep metric
    learning", ICML 2020. https://arxiv.org/abs/2002.08473
    Lin et al., "Deep variational metric learning", ECCV 2018, Table 4.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.evaluation.metric import metric
from trainables.words.errors import ConfigError

BLOCK = 1024  # rows of a block of distances
LEAST_INTER = 1e-8  # of π_inter, as in the public code


@metric("density")
def density(rows: Tensor, labels: Tensor) -> float:
    """Return π_density = π_intra/π_inter, ≥ 0, as Roth et al. (CVPR 2022), section 4.4, words it.

    π_intra is the mean Euclidean distance over all pairs of different items of the same class.
    π_inter is the mean Euclidean distance over all pairs of class centres; a centre is the mean of
    unit rows, and is not normalised. For the public code, which differs, see `density_code`.
    """
    centres = compute_class_means(rows, labels)
    return mean_intra_distance(rows, labels) / mean_inter_distance(centres)


@metric("density_code")
def density_code(rows: Tensor, labels: Tensor) -> float:
    """Return π_density = π_intra/π_inter, ≥ 0, as the public code of Roth et al. (ICML 2020) does:

        π_intra = 1/C Σ_c 1/(n_c(n_c − 1)) Σ_{i≠j in c} (1 − ⟨x_i, x_j⟩)
        π_inter = 1/(C(C − 1)) Σ_{a≠b} (1 − ⟨m_a, m_b⟩),   m_c = Σ_{i in c} x_i / ‖Σ_{i in c} x_i‖

    The code calls it "dists@intra_over_inter". Unlike `density` it uses cosine distances (half the
    squares of Euclidean ones), weighs all classes equally and normalises centres. Pairs are not
    listed, because ‖Σ x‖² = Σ_ij ⟨x_i, x_j⟩; all sums are float64.

    Deviations: a class of one image takes the largest value of the other classes, as the code's
    comment says; the code, by an indexing error, takes the largest of the first two classes. A
    π_inter below 1e-8 is an error here, where the code divides by 1e-8.
    """
    # mean distance within each class; a class of one image takes the largest of the other classes
    sizes, sums = _count_class_sizes(labels), sum_classes(rows, labels)
    has_pairs = sizes > 1
    n = sizes[has_pairs].double()
    class_intra = 1 - (sums[has_pairs].square().sum(1) - n) / (n * (n - 1))
    singles = len(sizes) - len(n)
    intra = float(class_intra.sum() + singles * class_intra.max()) / len(sizes)
    # mean distance between the normalised centres
    centres, count = F.normalize(sums, dim=1), len(sizes)
    products = float(centres.sum(0).square().sum() - centres.square().sum())
    inter = 1 - products / (count * (count - 1)) if count > 1 else 0.0
    if inter < LEAST_INTER:
        raise build_equal_centers_error(count)
    return max(intra, 0.0) / inter


@metric("concentration")
def concentration(rows: Tensor, labels: Tensor) -> float:
    """Return σ²_κ, the population variance over classes of κ_c/π_inter.

    κ_c is the mean distance of a class's items to its centre, π_inter the mean distance of two
    class centres. Classes of one image, whose κ is 0, are left out of the variance.
    """
    has_pairs, centres, kappa = _compute_spreads(rows, labels)
    return float((kappa[has_pairs] / mean_inter_distance(centres)).var(correction=0))


@metric("spectrum")
def spectrum(rows: Tensor, _: Tensor | None = None) -> float:
    """Return ρ = KL(U ‖ S) = Σ 1/m · log(1/(m s_i)), in nats; 0 if all directions are used equally.

    U is uniform; S are the m = min(N, E) singular values of the embedding matrix (not centred)
    divided by their sum. Singular values below the resolution of float64, s_max·max(N, E)·2⁻⁵²,
    are raised to it, so that rank-deficient embeddings give a large number and not infinity. All
    singular values count, as in "rho_spectrum@1" of the public code of Roth et al. (ICML 2020),
    which also has forms without the largest value (@2) and the nine largest (@10).
    """
    share = compute_singular_shares(rows)
    return float(-(share * len(share)).log().mean())


def compute_singular_shares(rows: Tensor) -> Tensor:
    """Return the singular values of rows divided by their sum, [m] float64, in descending order."""
    triangle = rows.new_empty((0, rows.shape[1]), dtype=torch.float64)
    # Matrix R of the QR decomposition, updated by block after block, has the same singular values.
    for block in torch.split(rows, 4 * BLOCK):
        triangle = torch.linalg.qr(torch.cat([triangle, block.double()]), mode="r").R
    values = torch.linalg.svdvals(triangle)
    least = float(values.max()) * max(rows.shape) * torch.finfo(torch.float64).eps
    values = values.clamp(min=max(least, torch.finfo(torch.float64).tiny))
    share: Tensor = values / values.sum()
    return share


@metric("uniformity")
def uniformity(rows: Tensor, _: Tensor | None = None) -> float:
    """Return G_2, the mean over pairs of different items of exp(−2‖u − v‖²), in (0, 1].

    Wang & Isola's uniformity is log G_2; Roth et al. (CVPR 2022) print G_2. A single item gives 1.
    """
    count = len(rows)
    if count == 1:
        return 1.0
    sums = []
    for first in range(0, count, BLOCK):
        a = rows[first : first + BLOCK]
        for second in range(first, count, 4 * BLOCK):
            b = rows[second : second + 4 * BLOCK]
            kernel = squared_distances(a, b).mul_(-2).exp_()
            # Count each pair once: leave out entries on and below the full matrix's diagonal.
            if second < first + len(a):
                kernel = kernel.triu(first - second + 1)
            sums.append(kernel.sum(dtype=torch.float64))
    return float(torch.stack(sums).sum()) / (count * (count - 1) / 2)


@metric("gaussian_p")
def gaussian_p(rows: Tensor, labels: Tensor) -> float:
    """Return the mean, over classes and dimensions, of the p-value of an isotropic Gaussian spread.

    In each class x − μ_c is divided by one σ_c for all dimensions, where σ_c² is the mean of all
    squared entries. Each dimension's n numbers are tested against N(0, 1) by Kolmogorov–Smirnov:
    p = Q((√n + 0.12 + 0.11/√n)·D), with Stephens' correction, where D is the largest distance of
    the distribution functions and Q is Kolmogorov's survival function. Since μ_c and σ_c come from
    the data, p is larger than uniform under the hypothesis: drawn Gaussians give 0.71 to 0.77 (4 to
    400 items of a class, 16 to 512 dimensions); DVML prints 0.75 to 0.84. A class of equal items
    has σ = 0 and p = 0.
    """
    return float(_compute_class_p_values(rows, labels).mean())


@metric("gaussian_p_deviation")
def gaussian_p_deviation(rows: Tensor, labels: Tensor) -> float:
    """Return the population standard deviation over classes of the p-values behind `gaussian_p`."""
    return float(_compute_class_p_values(rows, labels).std(correction=0))


@metric("relative_deviation")
def relative_deviation(rows: Tensor, labels: Tensor) -> float:
    """Return the mean over classes of (mean distance of items to the centre μ_c)/‖μ_c‖, ≥ 0.

    Refuse a class centre 0, for which the value would be infinite.
    """
    has_pairs, centres, spread = _compute_spreads(rows, labels)
    length = torch.linalg.vector_norm(centres.double(), dim=1)
    if (length[has_pairs] == 0).any():
        raise ConfigError(
            "metrics.relative_deviation",
            "a class centre is 0, so that the metric is infinite",
            "Leave out the metric",
        )
    return float((spread / length)[has_pairs].mean())


def _compute_spreads(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Measure how far the items of each class are from its centre.

    Returns:
        Whether a class has two images or more [C], the centres [C, E], and the mean distance of
        items to their centre [C] float64.
    """
    sizes, centres = _count_class_sizes(labels), compute_class_means(rows, labels)
    distances = torch.linalg.vector_norm(rows - centres[labels], dim=1).double()
    order = labels.argsort(stable=True)
    return sizes > 1, centres, torch.segment_reduce(distances[order], "mean", lengths=sizes)


def _compute_class_p_values(rows: Tensor, labels: Tensor) -> Tensor:
    """Return for each class with two images or more the p-value of a Gaussian spread."""
    groups = _group_classes_by_size(rows, labels)
    return torch.cat([_compute_group_p_values(group) for group in groups])


def _count_class_sizes(labels: Tensor) -> Tensor:
    """Return the sizes of the classes [C]; at least one class must have two images."""
    sizes = torch.bincount(labels)
    if not (sizes > 1).any():
        raise ConfigError(
            "metrics", "all classes have one image each", "One class needs two images"
        )
    return sizes


def _group_classes_by_size(rows: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Yield the rows [c, n, E] of c classes of the same size n > 1, as many as fit in memory.

    Few batched calls then replace one call per class.
    """
    sizes, order = _count_class_sizes(labels), labels.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    for size in torch.unique(sizes[sizes > 1]).tolist():
        most_classes = max(1, 4 * BLOCK * BLOCK // (size * max(size, rows.shape[1])))
        for class_starts in torch.split(starts[sizes == size], most_classes):
            yield rows[order[class_starts[:, None] + torch.arange(size, device=rows.device)]]


def _compute_group_p_values(items: Tensor) -> Tensor:
    """Return p-values [c] of c classes of n items, [c, n, E], for an isotropic Gaussian spread.

    Each dimension is tested by Kolmogorov–Smirnov, and the p-values are averaged over dimensions.
    """
    size = items.shape[1]
    centred = items - items.mean(1, keepdim=True)
    sigma = centred.square().mean((1, 2), keepdim=True).sqrt()
    # Equal items differ from their mean by rounding only, so compare with a small share of norms.
    all_equal = sigma <= 1e-6 * torch.linalg.vector_norm(items, dim=2).mean(1)[:, None, None]
    normal = torch.special.ndtr((centred / torch.where(all_equal, 1.0, sigma)).sort(1).values)
    # find the largest distance of the empirical from the normal distribution, at ends of steps
    step = torch.arange(size, device=items.device, dtype=items.dtype)[None, :, None] / size
    distance = torch.maximum(normal - step, step + 1 / size - normal).amax(1).double()
    root = size**0.5
    p = kolmogorov_survival((root + 0.12 + 0.11 / root) * distance)
    return torch.where(all_equal[:, :, 0], 0.0, p).mean(1)


def kolmogorov_survival(x: Tensor) -> Tensor:
    """Return Q(x) = 2 Σ_{j ≥ 1} (−1)^{j−1} exp(−2j²x²); 1 for x < 0.2, where 1 − Q < 1e-12."""
    terms = ((-1) ** (j - 1) * torch.exp(-2 * (j * x) ** 2) for j in range(1, 31))
    total: Tensor = sum(terms, torch.zeros_like(x))
    return torch.where(x < 0.2, 1.0, (2 * total).clamp(0, 1))


def compute_class_means(rows: Tensor, labels: Tensor) -> Tensor:
    """Return the class means [C, E] of labels 0 … C − 1, deterministically on GPUs too."""
    order = labels.argsort(stable=True)
    return torch.segment_reduce(rows[order], "mean", lengths=torch.bincount(labels), axis=0)


def sum_classes(rows: Tensor, labels: Tensor) -> Tensor:
    """Normalise rows in float64 and sum each class: [C, E], in a fixed order on GPUs too.

    Normalised in float32, rows would be off by about 1e-7, as much as small cosine distances.
    """
    order = labels.argsort(stable=True)
    sums = rows.new_zeros((int(labels.max()) + 1, rows.shape[1]), dtype=torch.float64)
    for indices in torch.split(order, 4 * BLOCK):
        classes, sizes = torch.unique_consecutive(labels[indices], return_counts=True)
        unit = F.normalize(rows[indices].double(), dim=1)
        sums[classes] += torch.segment_reduce(unit, "sum", lengths=sizes, axis=0)
    return sums


def mean_intra_distance(rows: Tensor, labels: Tensor) -> float:
    """Return the mean distance over all pairs of different items of the same class."""
    sizes, sums = _count_class_sizes(labels), []
    count = int((sizes * (sizes - 1) // 2).sum())
    for items in _group_classes_by_size(rows, labels):
        for first in range(0, items.shape[1], BLOCK):
            block = items[:, first : first + BLOCK]
            distances = squared_distances(block, items).clamp_(min=0).sqrt_()
            sums.append(distances.triu(first + 1).sum(dtype=torch.float64))  # each pair once
    return float(torch.stack(sums).sum()) / count


def mean_inter_distance(centres: Tensor) -> float:
    """Return the mean distance over all pairs of class centres [C, E]; refuse equal centres."""
    count, total = len(centres), 0.0
    for first in range(0, count, BLOCK):
        distances = torch.cdist(centres[first : first + BLOCK].double(), centres[first:].double())
        total += float(distances.triu(1).sum())
    if total == 0:
        raise build_equal_centers_error(count)
    return total / (count * (count - 1) / 2)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return ‖a − b‖² [..., A, B] of unit rows as ‖a‖² + ‖b‖² − 2⟨a, b⟩, rounded by about 1e-7."""
    norms = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
    return norms.sub_((a @ b.mT).mul_(2))


def build_equal_centers_error(classes: int) -> ConfigError:
    """Return the error for embeddings without two different class centres."""
    return ConfigError(
        "metrics",
        f"all {classes} classes have the same centre" if classes > 1 else "there is only 1 class",
        "The metric needs classes with different centres",
    )
