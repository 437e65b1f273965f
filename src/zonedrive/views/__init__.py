"""File system that `fuse` calls, with virtual entries in addition to the inodes of `vfs`.

stack             the file system: passes each operation to the layer that handles it
virtual           virtual entries, which are not on the service, and their operations
versions          the folder `.versions` with the former versions of files
desktop_trash     the trash folder of file managers
volume_info       the name and the icon of the mount for file managers
trash             operations on the service's trash
status_report     the data for `status`, `sync`, `conflicts` and queries about one path
upload_wait       waiting for uploads, for `sync`
entry_states      the states of entries for file managers
"""
