"""What every other folder may use: errors, configuration at the file boundary, run folders, atomic I/O.

Nothing here imports torch.
"""
