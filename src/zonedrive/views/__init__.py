"""The file system as `fuse` calls it: layers of virtual entries over the inodes of `vfs`.

stack             the file system: passes each operation to the layer that handles it
virtual           virtual entries, shown in addition to the service's, and their operations
versions          the folder `.versions` with the former versions of files
desktop_trash     the trash folder of desktops
trash             deletion into the service's trash, and restore
status_report     the answers to `status`, `sync` and `conflicts`, and about a path
"""
