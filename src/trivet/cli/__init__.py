"""The command line: verbs that parse, call one function and print. Nothing else in trivet prints.

One file a verb; every import that costs time happens inside the verb that needs it.
"""
