# what: perl: open modes, two-argument open, dup'ed handles, sysread, seek, -i, -n, File::Find,
#   File::Copy, IO::File, :mmap and :encoding layers, require, DATA
# version: perl -v
# run
cd "$DATA" || exit 1
cat > text/prog.pl <<'END'
use strict; use warnings; use File::Find; use File::Copy; use IO::File;
use Fcntl qw(:DEFAULT :seek :flock); use Digest::MD5; use File::Compare; use Cwd;
sub sum {
  my ($file) = @_; open(my $h, '<', $file) or return "no $file: $!"; binmode $h;
  my $d = Digest::MD5->new->addfile($h)->hexdigest; close $h; $d
}
print sum($_), "\n" for sort(glob("text/*"), glob("binary/*"));
open(my $h, 'text/numbers') or die; my $a = <$h>; my @two = (scalar <$h>, scalar <$h>);
print $a, @two, tell($h), " $.\n";
open(my $dup, '<&', $h) or die; print scalar <$dup>; open(my $same, '<&=', fileno($h)) or die;
print fileno($same) == fileno($h) ? "same\n" : "other\n";
seek($h, 100, SEEK_SET); read($h, my $b, 20); print "$b ", eof($h) ? 1 : 0, "\n";
sysseek($h, 50, 0); sysread($h, $b, 10); print "$b\n";
print -s $h, " ", (stat $h)[7], " ", -T 'text/words' ? "text" : "binary",
  -B 'binary/4096' ? "binary" : "text", "\n";
{ local $/; open(my $s, '<', 'text/long'); print length(<$s>), "\n"; }
{ local $/ = \1000; open(my $s, '<', 'binary/4097'); my $n = () = <$s>; print "$n\n" }
open(my $layer, '<:mmap', 'binary/65536') or die;
{ local $/; print Digest::MD5::md5_hex(<$layer>), "\n" }
open(my $enc, '<:encoding(UTF-8)', 'names/' . "\xc3\xbcml\xc3\xa4ut") or die;
print scalar <$enc>; open(my $unix, '<:unix', 'text/one'); print <$unix>;
open(my $rw, '+<', 'text/one') or die; print scalar <$rw>; seek $rw, 0, 0; print $rw "ONE";
close $rw; print sum('text/one'), "\n"; open(my $ap, '>>', 'text/one'); print $ap "more\n";
close $ap; open(my $r, 'text/one'); print <$r>; open(my $tr, '+>', 'text/no_newline');
print $tr "x"; seek $tr, 0, 0; print <$tr>, "\n";
open(my $pipe, '-|', 'cat', 'text/one') or die; print <$pipe>;
open(my $to, '|-', 'cat > text/piped'); print $to "p\n"; close $to;
print `cat text/piped`, qx(wc -l < text/words); open(STDIN, '<', 'text/table');
print scalar <STDIN>; print `cat | head -1`;
my @found; find({ wanted => sub { push @found, $File::Find::name if -f }, no_chdir => 1 }, '.');
print scalar(@found), " ", compare('text/words', 'text/words'), "\n";
find(sub { open(my $f, '<', $_) if -f; }, 'tree'); copy('text/words', "$ENV{OUT}/copied");
move('text/table', 'text/moved');
print sum("$ENV{OUT}/copied"), sum('text/table'), sum('text/moved'), "\n";
my $io = IO::File->new('text/words', O_RDONLY) or die; print $io->getline; my @rest = $io->getlines;
print scalar(@rest), $io->opened, $io->eof ? 1 : 0, "\n"; flock($io, LOCK_SH) or print "lock: $!\n";
sysopen(my $ex, 'text/new', O_RDWR | O_CREAT | O_EXCL) or die; syswrite $ex, "abc";
sysseek $ex, 0, 0; sysread $ex, $b, 10; print "$b\n"; truncate('text/words', 30);
print sum('text/words'), "\n"; unlink 'text/long'; print sum('text/long'), "\n";
open(my $dir, '<', 'text'); print defined(<$dir>) ? 1 : "dir: $!", "\n"; utime 1, 2, 'text/new';
print +(stat 'text/new')[9], "\n";
if (my $pid = fork) { waitpid $pid, 0; print "parent ", scalar <$h> }
else { my $x = <$h>; print "child $x"; close STDOUT; require POSIX; POSIX::_exit(0) }
do './text/done.pl' or die;
require './text/Mod.pm'; print Mod::f(), "\n"; print while <DATA>;
__DATA__
after the end
END
echo 'print "done ", (caller)[1], "\n"; 1' > text/done.pl
echo 'package Mod; sub f { __FILE__ } 1' > text/Mod.pm
perl text/prog.pl || exit 1
perl -ne 'print if $. < 3' text/words; perl -pi -e 's/\d+/n$&/' text/numbers; head -2 text/numbers
perl -i.orig -pe 'tr/a-z/A-Z/' text/moved; head -1 text/moved text/moved.orig
perl -e 'print <>' text/one text/absent; perl -0777 -ne 'print length' binary/sparse
perl -MIO::Handle -e 'open F, "<", "text/one"; print "eof\n" if !eof F; F->blocking(0);
  print <F>; print ungetc F 65; print getc F'
perl text/absent.pl; echo "status $?"
exit 0
