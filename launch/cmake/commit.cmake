# DEX_COMMIT: what is checked out, looked up again by the first build after it moved.
set(DEX_COMMIT unknown)
if(EXISTS ${PROJECT_SOURCE_DIR}/.git)  # else a copy inside someone else's repository would take theirs
  execute_process(COMMAND git describe --always --exclude=* --abbrev=12 --dirty=\ and\ changes
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE code ERROR_QUIET)
  if(code EQUAL 0)
    set(DEX_COMMIT ${found})
    execute_process(COMMAND git rev-parse --path-format=absolute --git-path logs/HEAD
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(EXISTS "${found}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${found})
    endif()
  endif()
endif()
