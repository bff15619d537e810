// Empty: CMake wants a source in the target that builds the precompiled header.
