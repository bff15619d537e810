// Empty. CMake requires a source in the target that builds the precompiled header.
