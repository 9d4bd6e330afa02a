"""verl on a CPU, for which it has no platform: import this before anything of verl's asks for a device."""

from __future__ import annotations

import os
import sys
import time
from types import ModuleType

import peft
import torch
from ray._private import services
from torch.distributed.fsdp import CPUOffloadPolicy
from transformers import AutoModelForTokenClassification
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform
from verl.utils import model as verl_models
from verl.utils.flops_counter import FlopsCounter

from memenvs.models import LoRA
from memenvs.models.lora import PREFIX, add_adapter

os.environ["VERL_ENGINE_DEVICE"] = "cuda"  # the engines are registered for GPUs alone
FIRST_VALUES = 0.01
"""The weights of a critic's head before the first step."""
make_adapter, find_node = peft.get_peft_model, services.get_node
start_processes, set_policy = torch.distributed.init_process_group, CPUOffloadPolicy.__init__


class CPUModule(ModuleType):
    """`torch.cpu` with what verl asks of `torch.cuda`, which there is 0 or does nothing."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, lambda *args, **kwargs: (0, 0) if name == "mem_get_info" else 0)


@PlatformRegistry.register("cpu")
class CPUPlatform(PlatformCUDA):
    """What verl asks of a GPU, answered by the processor."""

    device_name = vendor_name = "cpu"
    device_module = CPUModule("torch_cpu")

    def is_available(self):
        return True

    def is_platform_available(self, use_smi_check=False):
        return True

    def current_device(self):
        return "cpu"

    def communication_backend_name(self):
        return "gloo"

    def is_ipc_supported(self):
        return False


def start_gloo(*args, **kwargs):
    """Processes that talk by gloo; verl's own word for it names the device twice."""
    return start_processes(*args, **kwargs | {"backend": "gloo"})


def load_critic(local_path, torch_dtype, model_config, trust_remote_code):
    """A critic without flash-attn, which verl asks for by name, and with a head that is always the same."""
    settings = {"dtype": torch_dtype, "config": model_config, "attn_implementation": "sdpa"}
    critic = AutoModelForTokenClassification.from_pretrained(local_path, **settings)
    torch.nn.init.constant_(critic.score.weight, FIRST_VALUES)
    torch.nn.init.zeros_(critic.score.bias)
    return critic


def make_our_adapter(model, config, *args, **kwargs):
    """An adapter with the first weights that ours have, which verl draws by the global generator."""
    ours = dict(add_adapter(model, LoRA(config.r)).named_parameters())
    adapted = make_adapter(model, config, *args, **kwargs)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if ".lora_A." in name:
                weight.copy_(ours[name.removeprefix(PREFIX)])
    return adapted


def wait_for_node(*args, **kwargs):
    """A node of Ray's that starts, for which Ray waits 30 s, too few on cores that do other work too."""
    end = time.monotonic() + 300
    while True:
        try:
            return find_node(*args, **kwargs)
        except RuntimeError:
            if time.monotonic() > end:
                raise
        time.sleep(1)


services.get_node = wait_for_node
no_vllm = ModuleType("verl.workers.rollout.vllm_rollout.utils")  # whose package does not load without vLLM
no_vllm.get_vllm_max_lora_rank = lambda rank: rank  # which verl checks of an adapter
sys.modules[no_vllm.__name__] = no_vllm
set_platform(CPUPlatform())
peft.get_peft_model = make_our_adapter
verl_models.load_valuehead_model = load_critic
torch.distributed.init_process_group = start_gloo
CPUOffloadPolicy.__init__ = lambda self, pin_memory=True: set_policy(self, pin_memory=False)
FlopsCounter.estimate_flops = lambda self, *args, **kwargs: (0.0, 1.0)  # of a GPU that it has no numbers for
