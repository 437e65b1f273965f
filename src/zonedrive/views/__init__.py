"""The file system as `fuse` calls it: layers of virtual entries over the inodes of `vfs`.

stack             the file system: passes each operation to the layer that handles it
virtual           virtual entries, shown in addition to the service's, and their operations
versions          the folder `.versions` with the former versions of files
desktop_trash     the trash folder of file managers
volume_info       the name and the icon of the mount for file managers
trash             deletion into the service's trash, and restore
status_report     the data for `status`, `sync` and `conflicts`, and about a path
entry_states      the states of entries for file managers
"""
