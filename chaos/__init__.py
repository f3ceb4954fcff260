"""The release gate: scenarios that break a cluster on purpose and judge what it did.

Empty until the suite lands. The local cluster that it will drive lives in `picker.sim`.
"""
