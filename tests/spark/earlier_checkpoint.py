"""The checkpoints that an earlier engine left: a pipeline with rows and with windows, after 30 orders.

They were recorded with commit cfcc90e, in which every batch went through `foreachBatch` and offsets had no topic ids:

    name: shop
    spark: {spark.sql.shuffle.partitions: 1}
    sources:
      orders:
        topic: TOPIC
        value: {format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE, at TIMESTAMP NOT NULL"}
        watermark: {column: at, delay: 10 minutes}
    steps:
      large: {sql: "SELECT id, customer, amount FROM orders WHERE amount > 10"}
      hours:
        sql: SELECT customer, window.start AS hour, count(*) AS n, sum(amount) AS total FROM orders
          GROUP BY customer, window(at, '1 hour')
    sinks:
      large: {from: large, topic: large, key: id}
      hours: {from: hours, topic: hours, key: customer}

Order `i`, from 0 to 29, is `{"id": i, "customer": "c" + i % 3, "amount": i, "at": i minutes after midnight}`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
import zlib
from pathlib import Path

ORDERS = 30


LAST_BATCHES = {"orders": 0, "hours": 1}
"""Of each query."""


def restore(place: Path, topic: str, bootstrap: str) -> None:
    """As if that pipeline had run here, from this topic, and ended between two batches."""
    files: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(_FILES)))
    for name, text in files.items():
        path = place / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "metadata" and path.parent.name in ("hours", "orders"):
            text = json.dumps({"id": str(uuid.uuid4())})  # another checkpoint, with decisions of its own
        path.write_bytes(text.replace("TOPIC", topic).replace("BOOTSTRAP", bootstrap).encode("latin-1"))


def kill_before_commit(place: Path) -> None:
    """As if it had been killed after the last batch of each query was written, before Spark noted that."""
    for query, batch in LAST_BATCHES.items():
        (place / "shop" / query / "commits" / str(batch)).unlink()


def decisions(place: Path) -> dict[str, str]:
    """The records that it left in `__spark_decisions` for the last batches, and the notes that they are carried out."""
    records = {}
    for query, batch in LAST_BATCHES.items():
        checkpoint = json.loads((place / "shop" / query / "metadata").read_text())["id"]
        digest = hashlib.sha256(f"shop\n{query}\n{checkpoint}".encode()).hexdigest()[:12]
        name = f"shop-{query}-{digest}"
        records[name] = json.dumps({"batch": batch, "query": "", "transactions": []})
        records[f"{name}/done"] = json.dumps({"batch": batch})
    return records


_FILES = (
    "eNrtWHtv2kgQ/yoW0qnpCYgN5tU/7loISVFL4AK59K5E7WKvg4vtdXfXebTiu9/sw8TmkUJ00l0lEgnbszO/ndfO7uz3wowklB07JAx9zo7Nwi"
    "ujcGtNou+TQoTveRtxZ3aFOKYhovM+mxReWY1Go9ayG7YJf4tC0ViBsJ4PEWKOXMSRQABp3wXeSaE1reKpi5slxzNxybZqZgnVa3bJqyPLrFXq"
    "uFatTAoZGOJ5DK8YM13Xwixq8tgPMeMojLVyLbtVbzZrVtOuAYtDIg/IgMFiEC2zr0GZcYpR6Ec38AaYI04oLseU3Poupp0AMSY1J/SmjGLkzH"
    "D5URbfYyfhPolWUcpvT05HbeTMsTtaog416KRQzCrgUhKfJHHgO8DIyi4WhvmRz7jvvMMPAwoiZRyhaYCVEzlN8ArGRiMocebMnZZDTG/wIMYU"
    "AflPTBkoLIEq+6B4BNzNs+K1reJfE0wfurckUM5Ryo8goA5eUiWEhwK2ky04cogLtFOphZRNIoY8TMnd0/JeEqS2lxMGcNR3+Al4l/rTR0We9K"
    "kXIN5H8RklScyufD6TMVXwp2tu2e7VMAm4Hwd4mbtDAlF/kFLAsFs07jozDBFJwlxO7ODIrCNQcIce2HkSBAJikPA44bvnGLq5ofgG6cTfyQle"
    "EjmSH1YWJ9PE695zHAl29mM7ZonnBbAoEeW+AFEr0tqq3xfiR/tHJ+NlqH8xxUwIwbuLHSkafLNXhEnM/dD/BuszpkmET/0AAss6KBqKz1EKPU"
    "qmcYByGb9YyFI2Hgx7HaAb8G6KZ9VcbKh+1tPVL1eDn66E9Ypdqx8q4aESHirhoRL+RJWQzVCMy18YifSB0qX+LRZ8oIVEB4XEu1xaTAMRUTHS"
    "j7kfuUqAk9h3mBIAdRyJ83Gpw7WgTwnhAIxiJdIeDMaj8cWboZICR8hFqAaFWoruwJIOo3RGX8/X7p31zseaI2GchKL0iRGA7J2fqREUkiTiin"
    "4yuGy/72q6po17/e5o/KYPKiwE/S5dO5/UrIpLcOdHXRygBzVomWGqBWVE66Ao+D7Gjpzp4/VC4geEzGGVS1skQflZpqewTgZGv3NoDrRF3ffd"
    "zthIzSwad+B2807kFOXGm5EhxIpGZ3B5Pj769aWgREVjdNk/UvZLCiccBcbpxaBvqBAaZxeDy6HR/isDfNU7PzGvjhAvGi8sCfvipU4Ckb86pn"
    "sJplrlFNIJkQ9tPoyPX4JTICp61nY1pqOUTqSI0lztvuy80useBZ/nfPtsv6zHWJ4UdEQlgcgC+CmEpa7zKY6xWDfSr340Z6vR18vJ0ASJcrss"
    "M4aVXcQiLscm/FuwuQeqOXz/t90OYGf9xZkk4vyS+/Xk08rSWuJhIT1UG61LNTMfWlRxVTbMIMCUgK0ojrHO5Si+VoZmryI65mvJVOuIx7Q+lE"
    "P1VTAsBVHzEXDamEwzXJXjNfUzs1hwCFwDrma5fpezmJ9ff9Ackt+qWkdPaW96HzKT1I6NaebblPpZduWPbZNugIg/O9Ihnrf+m8ZccW6Oyv6/"
    "mxKtsp5omUntLVBb6K70Q9Psq4D9t5Z9Sm9Yjhks4VCamE2j2y3ZrnPKmouy/RBjuRdDaU9EZYA93fNx4IqV/VFc+qjak6tweTG5CQIt0icooI"
    "sTE1BS/USbAdUmiybqoj6taqy9lEnraUaGp93O/sqo8vZsrOvFD5nSg5IAvtKmp3xqZLlbn4jNWnZsdVPeqAH+k3GU7636fsFUB42szQF5Thzh"
    "7J2HcUkiZXfy23pWP+Z09vpQN75EH9l7kUeUV5cUV18BpoTzTKbok+wIieOiiNUjTSMJ3zDxvRRzsYegQ9F2hB0SsCHFnn8PXaieCsjD7Cnc0g"
    "apfXmfS1gzK7f52tTCjVazNXVKuFWzSnbLq5aQW22VHM9pNMymh6C719emGuffuTeFStisHG4LDrcFh9uCw23BT3FboMvf4brgf3ZdsNZtggCC"
    "8rrt/sB3i5mWVtmaa3yv3nYvuunAb4Zlrrb+19sd7LubnJtv4rPuTd9/3I9vc87ObfXSKWlbrQkb2urFP4U8K+M="
)
