"""A hand-made process reward model, saved like the checkpoint of a `memenvs train prm` run."""

import json
import math


def save_prm(folder, model, probability=None):
    """Save a model with a random linear layer, or with one that gives every turn the same probability."""
    import torch

    from memenvs.models import HFPolicy

    policy = HFPolicy(str(model)).add_value_head(seed=1)
    with torch.no_grad():
        if probability is None:
            policy.value_head.weight.mul_(20)
        else:
            policy.value_head.weight.zero_()
            policy.value_head.bias.fill_(math.log(probability / (1 - probability)))
    policy.save(folder / "policy")
    (folder / "state.json").write_text(json.dumps({"args": {"labels": "outcome"}}))
    return str(folder)
