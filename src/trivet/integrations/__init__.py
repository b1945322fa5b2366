"""Precision schedules inside the training loops of other libraries.

One module a library, imported by name, so that none needs the packages of another:

    from trivet.integrations.huggingface import PrecisionCallback    # pip install 'trivet[huggingface]'
    from trivet.integrations.lightning import PrecisionCallback      # pip install 'trivet[lightning]'

A plain loop, Lightning Fabric and Accelerate need no adapter: `trivet.precision.PrecisionController` steps like a
learning-rate scheduler and saves like one.
"""
