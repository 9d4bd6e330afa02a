"""Logits and uniform numbers come in; a token for each row and its log-probability go out."""

from __future__ import annotations

from typing import Any, NamedTuple

from memenvs.extras import require

torch = require("torch", "train")


class Choice(NamedTuple):
    """How the next token is drawn: of what `top_k`, then `top_p`, then `min_p` leave, by its probability.

    Attributes:
        temperature: at least 0; 0 takes the likeliest token.
        top_p: in (0, 1]; only the likeliest tokens that together reach this share are drawn.
        top_k: only so many of the likeliest tokens are drawn; 0: all.
        min_p: in [0, 1]; only tokens at least this share as likely as the likeliest one are drawn.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def check(self) -> Choice:
        """Itself.

        Raises:
            ValueError: a number is out of its range.
        """
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be a number of at least 0, got {self.temperature!r}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p!r}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be at least 0 (0: all tokens), got {self.top_k!r}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be from 0 to 1, got {self.min_p!r}")
        return self

    @property
    def cuts(self) -> bool:
        """Whether some tokens are never drawn."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    def scaled(self, logits: Any) -> Any:
        """Logits (…, V) in float32 at the temperature; at temperature 0 as they are."""
        logits = logits.float()
        return logits if self.temperature in (0, 1) else logits / self.temperature

    def draw(self, logits: Any, uniforms: Any) -> tuple[Any, Any]:
        """Token ids (B,) and their log-probabilities (B,) in nats, by inverting the cumulative distribution.

        A row's token depends on its own logits and number alone. The log-probabilities are those of the whole
        distribution at the temperature, also where it is cut.

        Args:
            logits: (B, V).
            uniforms: (B,) float64 in [0, 1).
        """
        scaled = self.scaled(logits)
        top, likeliest = scaled.max(1, keepdim=True)
        weights = (scaled - top).exp_()  # the one exponential of a step: it dominates with large vocabularies
        sums = weights.cumsum(1, dtype=torch.float64)
        total = sums[:, -1:]
        if self.temperature == 0:
            ids = likeliest
        elif self.cuts:
            ids = _find(self._kept(weights).cumsum(1, dtype=torch.float64), uniforms)
        else:
            ids = _find(sums, uniforms)
        return ids[:, 0], ((scaled.gather(1, ids) - top).double() - total.log())[:, 0]

    def _kept(self, weights: Any) -> Any:
        """Weights (B, V), 0 where a token is not drawn; tokens as likely as the last one kept stay."""
        if 0 < self.top_k < weights.shape[1]:
            least = weights.topk(self.top_k, dim=1).values[:, -1:]
            weights = weights.where(weights >= least, 0)
        if self.top_p < 1:
            falling = weights.sort(dim=1, descending=True).values
            sums = falling.cumsum(1, dtype=torch.float64)
            enough = (sums < self.top_p * sums[:, -1:]).sum(1, keepdim=True)
            weights = weights.where(weights >= falling.gather(1, enough), 0)
        return weights.where(weights >= self.min_p, 0) if self.min_p else weights  # the largest weight is 1


def _find(sums: Any, uniforms: Any) -> Any:
    """The tokens (B, 1) in whose share of the cumulative weights (B, V) the uniform numbers (B,) fall."""
    whole = sums[:, -1:]
    # Below the whole even where the product rounds up, so that no token without weight is found.
    reached = torch.minimum(uniforms[:, None] * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(sums, reached, right=True).clamp_(max=sums.shape[1] - 1)
