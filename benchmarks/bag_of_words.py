"""Outside figure for text classification: TF-IDF of single words and logistic regression, by scikit-learn.

    pip install scikit-learn
    python benchmarks/bag_of_words.py clinc150/data_full.json
    python benchmarks/bag_of_words.py wordnet --text premise --pair hypothesis --train 20000

Of a pair the words of both texts count, each for itself. scikit-learn is no dependency of trivet.
"""

import argparse
from collections.abc import Sequence

from scipy.sparse import hstack

from trivet.tasks.data.documents import Part, load_documents, subset


def main(arguments: Sequence[str] | None = None) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--text", default="text")
    parser.add_argument("--pair", default="")
    parser.add_argument("--label", default="label")
    parser.add_argument("--train", type=int, default=0, help="training texts used; 0 uses all")
    parser.add_argument("--strength", type=float, default=10.0, help="inverse of the regularization, C")
    options = parser.parse_args(arguments)
    found = load_documents(options.data, text=options.text, pair=options.pair, label=options.label)
    train = subset(found.train, options.train, "train_examples")
    columns = (0, 1) if found.is_paired else (0,)
    words = [TfidfVectorizer(sublinear_tf=True).fit(train[column]) for column in columns]

    def features(part: Part):
        return hstack([one.transform(part[column]) for one, column in zip(words, columns, strict=True)]).tocsr()

    model = LogisticRegression(C=options.strength, max_iter=1000).fit(features(train), train.labels)
    print(f"{found.describe()}\ntest accuracy {model.score(features(found.test), found.test.labels):.4f}")


if __name__ == "__main__":
    main()
