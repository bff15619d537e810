# CPython's own tests, natively and under the library, two modules at a time, which suits the CI's
# machine. `make test` runs the modules that read, map and copy files most, as a job would; `make
# test-long` runs the quick set of cpython.py in each mode.
add_test(NAME apps.cpython_files
         COMMAND /usr/bin/python3 ${CMAKE_CURRENT_LIST_DIR}/cpython.py
                 --build $<TARGET_FILE_DIR:cubeshim> --jobs 2
                 --modules test_io test_fileio test_bufio test_mmap test_os test_posix test_shutil
                           test_pathlib test_zipfile test_glob test_import test_linecache
                 --columns virtual)
set_tests_properties(apps.cpython_files PROPERTIES TIMEOUT 1800 PROCESSORS 2 LABELS apps)
add_test(NAME apps.cpython
         COMMAND /usr/bin/python3 ${CMAKE_CURRENT_LIST_DIR}/cpython.py
                 --build $<TARGET_FILE_DIR:cubeshim> --jobs 2
                 --columns off real virtual wide)
set_tests_properties(apps.cpython PROPERTIES TIMEOUT 3600 PROCESSORS 2 LABELS long)
