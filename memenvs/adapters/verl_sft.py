"""verl's supervised fine-tuning on token ids: the data set that `data.custom_cls` names.

data.custom_cls.path=pkg://memenvs.adapters.verl_sft data.custom_cls.name=TokenRows
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memenvs.core.optional import require

pa: Any = require("pyarrow", "verl")
torch: Any = require("torch", "verl")


class TokenRows(torch.utils.data.Dataset):
    """Rows of token ids and loss masks, which verl's SFT trainer takes unchanged.

    verl's own `MultiTurnSFTDataset` renders the chat template around each message alone, so a prompt that
    depends on the messages before it, and a reply that continues an opened thought, get other tokens than
    the policy reads when it plays. These rows have the tokens of our learners.

    Args:
        parquet_files: files of Arrow, under verl's name of this argument, with rows of `input_ids` and
            `loss_mask`. They are mapped into memory, so a machine's processes share what they read.
        tokenizer: not used.
        config: verl's `data`; not used.
        processor: not used.
        max_samples: most rows to take, from the first; -1: all.
    """

    def __init__(
        self,
        parquet_files: str | Sequence[str],
        tokenizer: Any = None,
        config: Any = None,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        rows = pa.concat_tables([pa.ipc.open_file(pa.memory_map(str(file))).read_all() for file in files])
        self._rows = rows[:max_samples] if max_samples >= 0 else rows

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A row's `input_ids`, `position_ids` and `loss_mask`, each (T,) int64."""
        ids, mask = (
            self._rows[name][index].values.to_numpy(zero_copy_only=False).astype(np.int64)
            for name in ("input_ids", "loss_mask")
        )
        return {
            "input_ids": torch.from_numpy(ids),
            "position_ids": torch.arange(len(ids)),
            "loss_mask": torch.from_numpy(mask),
        }
