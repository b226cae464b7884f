"""What a GPU computes in one kernel, a lane a thread, where XLA would make tens of them and move what lies between.

Written in Pallas. A kernel is never needed: each has a function of JAX beside it that gives the same numbers, and that
is what judges roots and is differentiated.
"""
