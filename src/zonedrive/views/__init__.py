"""The file system as `fuse` calls it: a stack of views over the inodes.

stack             the file system: passes each operation to the view that handles it
nodes, verbs      virtual entries, shown in addition to the service's, and their operations
versions          the folder `.versions`, filled from `version_list`
desktop_trash     the trash folder of desktops; `trash` deletes and restores whole entries
restore           the mount's side of `zonedrive trash` and `restore`
status_report     the answers to `status`, `sync` and `conflicts`
path_lookup       facts about a path that a user asks about
"""
