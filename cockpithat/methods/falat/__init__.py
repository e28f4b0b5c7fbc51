"""FALAT (2606.00765): dependency-guided search for the earliest minimal set of decisive steps.

:mod:`.search` is the algorithm; it asks a judge, which is a model (:mod:`.llm_judge`) or rules over
graph and evidence (:mod:`.local_judge`). What can be computed is in :mod:`.space`, :mod:`.transitions` and
:mod:`.verdict`.
"""
