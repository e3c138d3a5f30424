"""From the runs of an experiment to what they say."""

from crg.evidence.reading import read_studies
from crg.evidence.sentences import caption, sentences_of, watermark
from crg.evidence.study import Study

__all__ = ["Study", "caption", "read_studies", "sentences_of", "watermark"]
