#!/bin/sh
# A machine of its own for one unprivileged user, made of this one:
# systemd_machine.sh ROOT CHECKOUT PREFIX-OF-PYTHON NAME-OF-CGROUP COMMAND
#
# Runs as the first process of new name spaces for mounts and processes, which end with it; nothing
# outside is changed but a cgroup, which its maker removes.  zonedrive is where the package puts it:
# the command, the unit, and what mount(8) calls.  The user's service manager is the real one.

set -eu

root=$1 checkout=$2 prefix=$3 command=$5
uid=4711
group=/sys/fs/cgroup/$4

# share PATH...: what is read only here anyway, and can change nothing outside.
share() {
    for path; do
        mkdir -p "$root$path"
        mount --bind "$path" "$root$path"
    done
}

# Within a chroot this cannot be asked for; whoever made that has seen to it.
mount --make-rprivate / 2>/dev/null || true
mount -t tmpfs -o mode=755 machine "$root"
cd "$root"
for name in bin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then cp -P "/$name" .; elif [ -d "/$name" ]; then share "/$name"; fi
done
share /usr /dev
share "$checkout"
case $prefix/ in /usr/*) ;; *) share "$prefix" ;; esac
cp -a /etc .
rm -rf etc/systemd/user etc/environment etc/fstab etc/mtab etc/fuse.conf
ln -s ../proc/self/mounts etc/mtab
mkdir -p proc sys run/systemd/system run/user tmp var home mnt
ln -s /run var/run
chmod 1777 tmp
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup

# One account, and one for root.
printf 'root:x:0:0::/root:/bin/sh\nperson:x:%s:%s::/home/person:/bin/sh\n' $uid $uid >etc/passwd
printf 'root:x:0:\nperson:x:%s:\n' $uid >etc/group
for folder in home/person run/user/$uid; do install -d -m 700 -o $uid -g $uid "$folder"; done

# Installed.
mkdir stage stage/bin stage/units stage/none sbin
ln -s "$command" stage/bin/zonedrive
mount --bind stage/bin usr/local/bin
for path in /usr/sbin/*; do ln -s "$path" sbin/; done
[ -e sbin/mount.fuse.zonedrive ] || # where a package is installed it is its own
    ln -s "$checkout/packaging/mount.fuse.zonedrive" sbin/
# Of the other user units of this machine only those that systemd itself stands on.
for name in default basic sockets timers paths shutdown exit; do
    cp "usr/lib/systemd/user/$name.target" stage/units/
done
for name in systemd-exit.service app.slice session.slice background.slice; do
    cp "usr/lib/systemd/user/$name" stage/units/
done
cp "$checkout/systemd/zonedrive@.service" stage/units/
mount --bind stage/units usr/lib/systemd/user
mount --bind stage/none usr/lib/systemd/user-generators

# The manager ends with `systemctl exit`; where another one shall follow, /run/again says so.
cat >stage/manager <<'MANAGER'
mkdir "$1"
chown "$2:$2" "$1" "$1/cgroup.procs" "$1/cgroup.subtree_control" "$1/cgroup.threads"
while :; do
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$1" \
        env -i HOME=/home/person USER=person PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C.UTF-8 \
        XDG_RUNTIME_DIR="/run/user/$2" setpriv --reuid "$2" --regid "$2" --clear-groups \
        /lib/systemd/systemd --user --log-target=console &
    wait $! || true
    [ -e /run/again ] || exit
    rm /run/again
done
MANAGER

# No mount of others is held here, or its daemon could not end.
if pivot_root . mnt 2>/dev/null; then
    cd /
    umount -l /mnt
else # within a chroot
    awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r path; do
        umount -l "$(printf %b "$path")" || true
    done
fi
exec chroot . sh -eu /stage/manager "$group" "$uid"
