"""The file system as `fuse` calls it: a stack of views over the inodes.

stack             the file system: each verb goes to the view that it concerns
nodes, verbs      virtual entries, which stand beside those of the service, and their verbs
versions          `.versions`, from what `version_list` was told
desktop_trash     the trash folder of desktops; `trash` deletes and brings back as a whole
restore           the mount's side of `zonedrive trash` and `restore`
status_report     what `status`, `sync` and `conflicts` tell
path_lookup       what a path means to a person who asks about it
"""
