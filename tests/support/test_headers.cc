// Nothing: the target that precompiles GoogleTest's headers needs a source.
