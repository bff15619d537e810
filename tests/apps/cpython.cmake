# CPython's own tests, natively and under the library. Two modules at a time, which is what the machine of the CI has.
add_test(NAME apps.cpython
         COMMAND /usr/bin/python3 ${CMAKE_CURRENT_LIST_DIR}/cpython.py --build $<TARGET_FILE_DIR:cubeshim> --jobs 2
                 --columns off real virtual wide)
set_tests_properties(apps.cpython PROPERTIES TIMEOUT 3600 PROCESSORS 2 LABELS apps)
