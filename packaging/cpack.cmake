# Makes a deb and an rpm of the installed files. dist.py sets the architecture.
set(CPACK_PACKAGE_NAME cubeshim)
set(CPACK_PACKAGE_VENDOR "The cubeshim authors")
set(CPACK_PACKAGE_CONTACT "The cubeshim authors <cubeshim@localhost.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "cache for training jobs that read from slow storage")
string(CONCAT CPACK_PACKAGE_DESCRIPTION
       "A preload library serves the files of slow mounts to unchanged programs from\n"
       "memory and a local disk that all processes of the node share, and fetches\n"
       "ahead what they will read. The command runs jobs, warms the cache up and\n"
       "shows what it does.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
# The linker has already stripped the binaries.
set(CPACK_STRIP_FILES OFF)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.17), libgcc-s1 | libgcc1")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libunwind8")  # native stacks of cubeshim profile

set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_PACKAGE_AUTOREQ OFF)
set(CPACK_RPM_PACKAGE_REQUIRES "glibc >= 2.17, libgcc_s.so.1()(64bit)")
string(CONCAT CPACK_RPM_SPEC_MORE_DEFINE
       "%define __strip /bin/true\n%define _build_id_links none\n"
       "%define use_source_date_epoch_as_buildtime 1\n%define clamp_mtime_to_source_date_epoch 1\n"
       "%define _buildhost localhost")

# The documents of both packages, and the documents that Debian requires in every package.
set(documents ${CMAKE_INSTALL_DATADIR}/doc/cubeshim)
install(FILES README.md CHANGELOG.md LICENSE SECURITY.md DESTINATION ${documents})
# The documents keep the folders of the source tree, so that their links work. `cubeshim docs` finds
# them there.
install(DIRECTORY doc DESTINATION ${documents})
install(DIRECTORY packaging/examples packaging/kubernetes DESTINATION ${documents}/packaging)
install(FILES packaging/copyright DESTINATION ${documents})
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(changelog ${PROJECT_BINARY_DIR}/packaging/changelog)
file(CONFIGURE OUTPUT ${changelog} CONTENT "cubeshim (@PROJECT_VERSION@) unstable; urgency=medium

  * CHANGELOG.md says what is new.

 -- @CPACK_PACKAGE_CONTACT@  @date@
" @ONLY)
execute_process(COMMAND gzip -9nf ${changelog})
install(FILES ${changelog}.gz DESTINATION ${documents})
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/triggers)
include(CPack)
