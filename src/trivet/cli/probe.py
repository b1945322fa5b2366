"""What torch is and can do here, as JSON.

`trivet doctor` runs it in a process of its own, so that a torch that crashes or hangs on import is a finding and not
the end of the doctor.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def probe() -> dict[str, Any]:
    """Import torch and ask it."""
    start = time.perf_counter()
    import torch

    seconds = time.perf_counter() - start
    available = torch.cuda.is_available()
    devices = (
        [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())] if available else []
    )
    return {
        "version": torch.__version__,
        "import_seconds": seconds,
        "threads": torch.get_num_threads(),
        "cuda_built": torch.version.cuda,
        "cuda_available": available,
        "devices": [{"name": item.name, "memory_gib": item.total_memory / 2**30} for item in devices],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "mkldnn": torch.backends.mkldnn.is_available(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


if __name__ == "__main__":
    json.dump(probe(), sys.stdout)
