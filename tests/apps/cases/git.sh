# what: git on the prefix: clone, status, add, commit, diff, log, blame, grep, checkout, stash,
#   merge, rebase, gc, fsck, archive, bundle
# needs: command git
# version: git --version
# ignore: *.git* *.git/*
# prepare
cd "$DATA" && git init -q -b main repo && cd repo && cp -r ../text ../tree . &&
  rm text/absent 2> /dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
  GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git add . && git commit -q -m first &&
  for n in 1 2 3; do echo "$n" >> text/one; git commit -q -am "change $n"; done &&
  git repack -qad && echo 4 >> text/one && git commit -q -am "change 4"
# run
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
  GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' \
  GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat GIT_ADVICE=0
cd "$DATA/repo" || exit 1
git status --short; git log --format='%h %s'; git diff --stat
git fsck --full 2>&1 | grep -v -i checking; git show --stat HEAD; git blame text/one
git grep -n needle | sort; git grep -c a HEAD~2 -- text; git ls-files -s | cksum
git cat-file -p HEAD:text/words | cksum
git clone -q . "$OUT/clone"; git -C "$OUT/clone" status --short
diff -r --exclude=.git . "$OUT/clone" && echo same
git clone -q --no-hardlinks "file://$PWD" "$DATA/clone"
git -C "$DATA/clone" fsck 2>&1 | grep -v -i checking; git -C "$DATA/clone" log --format=%h | cksum
git clone -q --depth 1 "file://$PWD" "$OUT/shallow"; git -C "$OUT/shallow" log --format=%h
echo 5 >> text/one; git status --short; git diff; git stash -q; cat text/one; git stash pop -q
cat text/one; git commit -q -am 'change 5'; git log -1 --format='%H %T'; git checkout -q HEAD~3
cat text/one; git status --short; git checkout -q main; cat text/one
git checkout -q -b side HEAD~2; echo side > text/side; git add text/side; git commit -q -m side
git mv text/words text/renamed; git rm -q text/table; git commit -q -m moved; git checkout -q main
ls text; git merge -q -m merge side; ls text; cat text/side; git log --graph --format=%s
git rebase -q side 2>&1 | tail -1; git log -1 --format=%T
git worktree add -q ../worktree side; ls ../worktree/text; git -C ../worktree status --short
echo w > ../worktree/text/w; git -C ../worktree add -A; git -C ../worktree commit -q -m worktree
git worktree list | wc -l; git worktree remove ../worktree; ls ..
git gc -q --prune=now; git count-objects | sed 's/,.*//'
git fsck --full --strict 2>&1 | grep -v -i checking; git log --format=%h | wc -l
git cat-file --batch-check --batch-all-objects | awk '{ print $2 }' | sort | uniq -c
git verify-pack .git/objects/pack/*.idx && echo verified; git repack -qadf; git pack-refs --all
git status --short; git diff HEAD~1 --stat
git archive HEAD | tar -t | cksum; git bundle create -q "$OUT/b" main; git bundle verify -q "$OUT/b"
git ls-remote "$OUT/b"; git reset -q --hard HEAD~1; git status --short; git clean -qfdx; git tag t
git describe --tags; git format-patch -q -1 -o "$OUT/p"; git rev-parse HEAD
git bisect start -q HEAD HEAD~2 > "$OUT/bisect"; git bisect reset -q 2> "$OUT/reset"
git rev-list --objects --all | wc -l; git push -q "$DATA/clone" main:pushed
git -C "$DATA/clone" rev-parse pushed; git fetch -q "$DATA/clone" pushed; git rev-parse FETCH_HEAD
rm -r "$OUT"/{b,bisect,reset,clone,shallow} "$DATA/clone"
exit 0
