// A source for the target that the precompiled header needs.
